"""Routes that show generations (texts that were spoken): one, and all of a user's."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from coatcheck.domain.tenants import Scope
from coatcheck.http.pages import PAGE_PARAMETERS, read_page
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routing import ULID, Parameter, ResponseSpec, Route
from coatcheck.products.speech import schemas
from coatcheck.products.speech.jobs import SpeechJobs
from coatcheck.products.speech.model import GenerationNotFound, SpeechType
from coatcheck.products.speech.presenter import GENERATIONS, shown_generation
from coatcheck.products.speech.repository import SpeechRepository
from coatcheck.products.speech.submit_routes import TAG

SPOKEN: Final = (SpeechType.GENERATE, SpeechType.DESIGN_PREVIEW)
"""The types of tasks that speak."""


class GenerationRoutes:
    """The routes that show generations."""

    def __init__(self, context: SpeechJobs) -> None:
        self._context = context

    async def one(self, request: Request) -> Response:
        context = self._context
        task = await context.engine.extension(SpeechRepository).generation(
            context.reader(request), request.params["id"]
        )
        # Checked twice: here, and by row security in the read above.
        if task.view.owner != request.principal.owner:
            raise GenerationNotFound("there is no such generation")
        return json_response(await shown_generation(context.engine, task))

    async def page(self, request: Request) -> Response:
        context = self._context
        asked = read_page(request)
        tasks = await context.engine.extension(SpeechRepository).tasks(
            context.reader(request),
            after=asked.after,
            types=SPOKEN,
            limit=asked.limit,
        )
        items = [await shown_generation(context.engine, task) for task in tasks]
        return json_response(
            schemas.GenerationPage(items, asked.following(items, lambda item: item.id))
        )


def routes(context: SpeechJobs) -> list[Route]:
    generations = GenerationRoutes(context)
    return [
        Route(
            methods=("GET",),
            path=GENERATIONS,
            name="generations",
            summary="List the caller's generations, newest first.",
            handler=generations.page,
            access=Scope.READ,
            tag=TAG,
            parameters=PAGE_PARAMETERS,
            responses=(
                ResponseSpec(HTTPStatus.OK, "A page of generations.", schemas.GenerationPage),
            ),
        ),
        Route(
            methods=("GET",),
            path=f"{GENERATIONS}/{{id}}",
            name="generation",
            summary="Read a generation, with the signed URL of its audio once that exists.",
            handler=generations.one,
            access=Scope.READ,
            tag=TAG,
            parameters=(Parameter("id", "path", "The generation's id.", ULID),),
            responses=(ResponseSpec(HTTPStatus.OK, "The generation.", schemas.Generation),),
        ),
    ]
