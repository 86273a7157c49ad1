"""What was spoken: one generation, and all of a user's."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from coatcheck.control.call import Call
from coatcheck.control.operations import ULID, Answer, Operation, Parameter
from coatcheck.control.queries import read_whole_number
from coatcheck.control.reply import Reply, json_reply
from coatcheck.domain.identity import Scope
from coatcheck.domain.speech import SpeechType
from coatcheck.domain.speech_errors import GenerationNotFound
from coatcheck.engine.speech import SpeechQueries
from coatcheck.surfaces.speech import words
from coatcheck.surfaces.speech.reading import PAGE_PARAMETERS
from coatcheck.surfaces.speech.scene import PAGE_ROWS, PAGE_ROWS_MAX, Scene, read_cursor
from coatcheck.surfaces.speech.showing import GENERATIONS, shown_generation
from coatcheck.surfaces.speech.submitting import TAG

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
