"""What was spoken: one generation, and all of a user's."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from coatcheck.domain.identity import Scope
from coatcheck.http.queries import read_whole_number
from coatcheck.http.request import Call
from coatcheck.http.response import Reply, json_reply
from coatcheck.http.routing import ULID, Answer, Operation, Parameter
from coatcheck.products.speech import schemas as words
from coatcheck.products.speech.context import PAGE_ROWS, PAGE_ROWS_MAX, Scene, read_cursor
from coatcheck.products.speech.errors import GenerationNotFound
from coatcheck.products.speech.model import SpeechType
from coatcheck.products.speech.presenter import GENERATIONS, shown_generation
from coatcheck.products.speech.read_routes import PAGE_PARAMETERS
from coatcheck.products.speech.repository import SpeechQueries
from coatcheck.products.speech.submit_routes import TAG

SPOKEN: Final = (SpeechType.GENERATE, SpeechType.DESIGN_PREVIEW)
"""The types of tasks that speak."""


class Generations:
    """The routes that show generations."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def one(self, call: Call) -> Reply:
        scene = self._scene
        task = await scene.engine.extension(SpeechQueries).generation(
            scene.reader(call), call.params["id"]
        )
        # The first wall. The read above was behind the second.
        if task.view.owner != call.principal.owner:
            raise GenerationNotFound("there is no such generation")
        return json_reply(await shown_generation(scene.engine, task))

    async def page(self, call: Call) -> Reply:
        scene, query = self._scene, call.query
        limit = read_whole_number(query, "limit", 1, PAGE_ROWS_MAX, default=PAGE_ROWS)
        tasks = await scene.engine.extension(SpeechQueries).tasks(
            scene.reader(call), after=read_cursor(query.get("cursor")), types=SPOKEN, limit=limit
        )
        items = [await shown_generation(scene.engine, task) for task in tasks]
        return json_reply(
            words.GenerationPage(items, items[-1].id if len(items) == limit else None)
        )


def operations(scene: Scene) -> list[Operation]:
    generations = Generations(scene)
    return [
        Operation(
            methods=("GET",),
            path=GENERATIONS,
            name="generations",
            summary="The caller's generations, newest first.",
            handler=generations.page,
            access=Scope.READ,
            tag=TAG,
            parameters=PAGE_PARAMETERS,
            answers=(Answer(HTTPStatus.OK, "A page of generations.", words.GenerationPage),),
        ),
        Operation(
            methods=("GET",),
            path=f"{GENERATIONS}/{{id}}",
            name="generation",
            summary="A generation, and the signed URL of its audio once that is there.",
            handler=generations.one,
            access=Scope.READ,
            tag=TAG,
            parameters=(Parameter("id", "path", "The generation's id.", ULID),),
            answers=(Answer(HTTPStatus.OK, "The generation.", words.Generation),),
        ),
    ]
