"""Routes that submit tasks: texts to speak, designs to preview, voices to clone; and that show
generations (texts that were spoken)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final
from uuid import UUID

import msgspec

from coatcheck.core import Ticket
from coatcheck.domain.errors import FieldIssue, InvalidInput
from coatcheck.domain.ids import new_id
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import PAYLOAD_BYTES_MAX
from coatcheck.domain.tenants import Scope
from coatcheck.http.bodies import read_body
from coatcheck.http.pages import JOB_PAGE_PARAMETERS, read_job_page
from coatcheck.http.parameters import check_webhook_url, read_preferences
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse, json_response
from coatcheck.http.routing import ULID, Handler, Parameter, RequestBody, ResponseSpec, Route
from coatcheck.products.speech import schemas
from coatcheck.products.speech.jobs import SpeechJobs
from coatcheck.products.speech.model import (
    LANGUAGE,
    SPEECH_ENDPOINTS,
    GenerationNotFound,
    SpeechReader,
    SpeechType,
)
from coatcheck.products.speech.presenter import GENERATIONS, shown_generation
from coatcheck.products.speech.repository import SpeechRepository
from coatcheck.products.speech.work import SpeechRequest

GENERATE: Final = "/generate"
DESIGN_PREVIEW: Final = "/voices/design-preview"
CLONE: Final = "/voices/{id}/clone"
TAG: Final = "speech"
_WEBHOOKS: Final = ("webhook_url", "state_webhook_url")
_encode: Final = msgspec.json.Encoder().encode


class SpeechSubmitRoutes:
    """The routes that submit tasks."""

    def __init__(self, jobs: SpeechJobs) -> None:
        self._jobs = jobs

    async def generate(self, request: Request) -> Response | StreamResponse:
        """POST /generate: answers as soon as the task is stored."""
        self._check_caller(request)
        body = await read_body(request, schemas.Generate, PAYLOAD_BYTES_MAX)
        work = SpeechRequest(
            SpeechType.GENERATE,
            body.language,
            body.text,
            voice_id=body.voice_id,
            clone_id=body.clone_id,
        )
        return await self._submitted(request, work, body)

    async def preview_design(self, request: Request) -> Response | StreamResponse:
        """POST /voices/design-preview: speaks a text with a voice that is only described."""
        self._check_caller(request)
        body = await read_body(request, schemas.DesignPreview, PAYLOAD_BYTES_MAX)
        work = SpeechRequest(
            SpeechType.DESIGN_PREVIEW, body.language, body.text, description=body.description
        )
        return await self._submitted(request, work, body)

    async def clone(self, request: Request) -> Response | StreamResponse:
        """POST /voices/{id}/clone: makes a prompt of a voice, with which texts can be spoken."""
        self._check_caller(request)
        body = await read_body(request, schemas.Clone, PAYLOAD_BYTES_MAX)
        work = SpeechRequest(
            SpeechType.CLONE, body.language, body.transcript or "", voice_id=request.params["id"]
        )
        return await self._submitted(request, work, body)

    def _check_caller(self, request: Request) -> None:
        """Checks made before the body is read. Raises UserRequired and SpeechNotConfigured."""
        self._jobs.reader(request)
        self._jobs.check_configured()

    async def _submitted(
        self,
        request: Request,
        work: SpeechRequest,
        body: schemas.Generate | schemas.DesignPreview | schemas.Clone,
    ) -> Response | StreamResponse:
        org, reader = request.principal.org, self._jobs.reader(request)
        preferences = read_preferences(request)
        _check(work)
        ticket = await self._ticket(request, reader, work, await self._webhook_urls(body, org))
        return await self._jobs.accepted(
            request, ticket, preferences, endpoint=SPEECH_ENDPOINTS[work.type]
        )

    async def _ticket(
        self, request: Request, reader: SpeechReader, work: SpeechRequest, webhooks: dict[str, Any]
    ) -> Ticket:
        jobs, principal = self._jobs, request.principal
        key = jobs.key(request)
        sources = await jobs.work.find_sources(reader, work, key)
        await jobs.check_new_work(request, key)
        # If the voice was deleted, the submission can only find the job that the key names.
        is_replay = sources is None
        voice = _NO_VOICE if is_replay else None
        if sources is not None and sources.voice is not None:
            voice = sources.voice.uuid
        clone = None if sources is None else sources.clone
        return await jobs.repository.submit(
            reader,
            new_id(),
            await jobs.work.payload(work, sources),
            kind=work.type,
            voice=voice,
            language=work.language,
            text=work.text,
            description=None if is_replay else work.description,
            clone=None if clone is None else clone.view.uuid,
            fingerprint_of=work.fingerprint,
            owner=principal.owner,
            queue_key=reader.user,
            lane=Lane.STANDARD,
            idempotency_key=key,
            request_id=request.request_id,
            timeout=jobs.settings.speech_timeout_seconds,
            **webhooks,
        )

    async def _webhook_urls(
        self, body: schemas.Generate | schemas.DesignPreview | schemas.Clone, org: str
    ) -> dict[str, Any]:
        """The task's webhook URLs. Raises UrlForbidden if one may not be called now; each delivery
        checks it again."""
        urls: dict[str, Any] = {}
        for name in _WEBHOOKS:
            url: str | None = getattr(body, name)
            if url is None:
                continue
            await check_webhook_url(name, url, self._jobs.server.receivers, org)
            urls[name] = url
        return urls


def _check(work: SpeechRequest) -> None:
    """Check the patterns of the OpenAPI document, with errors in words."""
    issues = []
    if work.type is not SpeechType.CLONE and not work.text.strip():
        issues.append(FieldIssue("text", "must not be only white space"))
    if work.description is not None and not work.description.strip():
        issues.append(FieldIssue("description", "must not be only white space"))
    if re.search(LANGUAGE, work.language) is None:
        issues.append(FieldIssue("language", "must be a language tag, such as en, en-gb or pt-BR"))
    if issues:
        raise InvalidInput(issues)


def routes(jobs: SpeechJobs) -> list[Route]:
    submitting = SpeechSubmitRoutes(jobs)
    return [
        _route(
            jobs,
            path=GENERATE,
            name="generate_speech",
            summary="Speak a text with a voice.",
            handler=submitting.generate,
            body=RequestBody("The text, language and voice.", schemas.Generate),
            not_found="The caller has no such voice (`voice_not_found`); or no remote is set "
            "(`speech_not_configured`).",
        ),
        _route(
            jobs,
            path=DESIGN_PREVIEW,
            name="preview_voice_design",
            summary="Speak a text with a voice that is only described.",
            handler=submitting.preview_design,
            body=RequestBody("The voice's description, and the text.", schemas.DesignPreview),
            not_found="No remote is set (`speech_not_configured`).",
        ),
        _route(
            jobs,
            path=CLONE,
            name="clone_voice",
            summary="Clone a voice: the remote makes a prompt of it, with which texts are spoken.",
            handler=submitting.clone,
            parameters=(Parameter("id", "path", "The voice's id.", ULID),),
            body=RequestBody("The language and transcript of the recording.", schemas.Clone),
            not_found="The caller has no such voice (`voice_not_found`); or no remote is set, or "
            "it has no address to fetch the voice from (`speech_not_configured`).",
        ),
    ]


def _route(
    jobs: SpeechJobs,
    *,
    path: str,
    name: str,
    summary: str,
    handler: Handler,
    body: RequestBody,
    not_found: str,
    parameters: Sequence[Parameter] = (),
) -> Route:
    """A route that submits tasks."""
    return jobs.submit_route(
        path,
        name,
        handler,
        summary=summary,
        description="Answers as soon as the task is stored; a remote does the work.",
        parameters=parameters,
        body=body,
        responses=(ResponseSpec.problem(HTTPStatus.NOT_FOUND, not_found),),
    )


_NO_VOICE: Final = UUID(int=0)
"""An id that no voice has."""


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
        asked = read_job_page(request)
        tasks = await context.engine.extension(SpeechRepository).tasks(
            context.reader(request), asked, types=SPOKEN
        )
        items = [await shown_generation(context.engine, task) for task in tasks]
        return json_response(
            schemas.GenerationPage(items, asked.following(items, lambda item: item.id))
        )


def generation_routes(context: SpeechJobs) -> list[Route]:
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
            parameters=JOB_PAGE_PARAMETERS,
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
