"""The tasks of speech: how they are found and shown, and how one is retried.

Reading a running task polls the remote, and stores the result if there is one. So a reader may be
the one who completes the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec

from coatcheck.core import Ticket
from coatcheck.core.org_jobs import OrgJobRepository
from coatcheck.domain.changes import ChangeCursor, Changes
from coatcheck.domain.errors import (
    InputNotKept,
    InvalidInput,
    JobNotEnded,
    JobNotFound,
    NotRetryable,
    UserRequired,
)
from coatcheck.domain.ids import from_text, to_text
from coatcheck.domain.job import JobView
from coatcheck.domain.listing import PageQuery
from coatcheck.domain.org_jobs import OrgJob
from coatcheck.domain.states import State
from coatcheck.domain.tenants import Scope
from coatcheck.domain.webhooks import DeliveryEvent
from coatcheck.http.context import ServerContext
from coatcheck.http.event_stream import CHANGES_PAGE, CHANGES_WALKED_MAX
from coatcheck.http.job_adapters import JobLabel, RetryRequest
from coatcheck.http.job_resource import JobResource
from coatcheck.http.parameters import read_choice
from coatcheck.http.request import Request
from coatcheck.http.response import StreamResponse
from coatcheck.http.routing import ULID, Parameter, Route
from coatcheck.http.upload_limits import UploadSlots
from coatcheck.http.watching import CHANGES_PARAMETERS, JobLinks, changes_response
from coatcheck.products.speech import schemas
from coatcheck.products.speech.model import (
    SPEECH_ENDPOINTS,
    SPEECH_SERVICE,
    SPEECH_TYPES,
    SpeechNotConfigured,
    SpeechReader,
    SpeechType,
    StoredSpeechTask,
    VoiceNotFound,
    generation_of,
    user_of,
)
from coatcheck.products.speech.presenter import TASKS, shown_task, shown_urls
from coatcheck.products.speech.repository import SpeechRepository
from coatcheck.products.speech.work import SpeechRequest, SpeechWork

_encode: Final = msgspec.json.Encoder().encode
_LABELS: Final = {
    SpeechType.GENERATE: "speak",
    SpeechType.DESIGN_PREVIEW: "preview a design",
    SpeechType.CLONE: "clone a voice",
}


class ExpiredTask(msgspec.Struct, frozen=True):
    """A task whose retention ended before its webhook was delivered. ``expired`` is true."""

    id: str
    generation_id: str | None
    status: schemas.SpeechStatus
    error_code: str | None
    terminal: bool
    expired: bool = True


class SpeechJobs(JobResource):
    """Tasks that a remote speaks. A user sees their own only."""

    product = SPEECH_SERVICE
    name = "speech_task"
    noun = "task"
    path = f"{TASKS}/{{id}}"
    path_parameters = (Parameter("id", "path", "The task's id.", ULID),)
    body = schemas.SpeechTask
    ticket_body = schemas.SpeechTicket
    page_body = schemas.SpeechTaskPage
    endpoints = SPEECH_TYPES
    states = schemas.ENGINE_STATES
    status_description = (
        "Polls the remote, unless it was polled just now, and stores the audio if it is ready."
    )
    cancel_description = (
        "Also cancels the work at the remote, if that can be reached. A task that has ended is "
        "returned unchanged."
    )
    refreshes = True
    cancels_ended = True
    # A concurrent poll may be the one that ends the task.
    cancel_wait_seconds = 5.0

    def __init__(self, server: ServerContext) -> None:
        super().__init__(server)
        self.settings = server.settings
        self.room = UploadSlots(server.settings.processes)
        """Limits concurrent uploads of voices."""
        self.work = SpeechWork(server.engine, server.settings)

    @property
    def repository(self) -> SpeechRepository:
        return self.engine.extension(SpeechRepository)

    def check_configured(self) -> None:
        """Raises SpeechNotConfigured if no remote for speech is set."""
        if self.settings.speech_target is None:
            raise SpeechNotConfigured(
                "Speech is not configured: set COATCHECK_SPEECH_REMOTE_URL to the base URL of an "
                "HTTP remote, or COATCHECK_SPEECH_REMOTE for another kind of remote, on servers "
                "and workers."
            )

    def reader(self, request: Request) -> SpeechReader:
        """The user who calls. Raises UserRequired if the credential names none."""
        principal = request.principal
        if principal.user is None:
            raise UserRequired(
                "Voices and generations belong to a user, and this credential names no user: send "
                "a user's token (a JWT whose `sub` is the user), or an API key, which has a user."
            )
        return SpeechReader(principal.org, principal.user)

    # Finding and showing

    async def find(self, request: Request, _: Scope) -> JobView:
        view = (await self.repository.task(self.reader(request), request.params["id"])).view
        # Checked twice: here, and by row security in the read above.
        if view.endpoint not in SPEECH_TYPES or view.owner != request.principal.owner:
            raise JobNotFound("there is no such task")
        return view

    async def refreshed(self, view: JobView) -> JobView:
        """Poll the remote, and complete the task if it is done. For a caller who waits for the end,
        the maintenance loop polls instead."""
        await self.remote_calls.look(view.org, view.uuid)
        return await self.read(view.id, view.org)

    async def show(self, view: JobView) -> schemas.SpeechTask:
        """The task in its current state. It is read anew on its user's behalf, so that no response
        contains a row that row security hides from them."""
        return await shown_task(self.engine, await self.repository.task(_reader(view), view.id))

    def ticket(
        self, job_id: str, state: State, links: JobLinks, endpoint: str
    ) -> schemas.SpeechTicket:
        kind = SPEECH_TYPES[endpoint]
        generation = None
        if kind is not SpeechType.CLONE:
            generation = to_text(generation_of(from_text(job_id)))
        return schemas.SpeechTicket(
            task_id=job_id,
            type=kind,
            generation_id=generation,
            # Not more exact: whether the task waits or runs is shown where it is read.
            status=schemas.STATUSES[state] if state.terminal else schemas.SpeechStatus.PROCESSING,
            terminal=state.terminal,
            urls=shown_urls(links, generation),
        )

    async def page(
        self, request: Request, asked: PageQuery
    ) -> tuple[Sequence[schemas.SpeechTask], str | None]:
        """The caller's tasks."""
        choice = read_choice(request.query, "status", list(schemas.SpeechStatus))
        type_ = read_choice(request.query, "type", list(SpeechType))
        tasks = await self.repository.tasks(
            self.reader(request),
            # Its cursors are ids of tasks.
            replace(asked, after=None if asked.after is None else generation_of(asked.after)),
            states=None if choice is None else schemas.ENGINE_STATES[schemas.SpeechStatus(choice)],
            types=tuple(SpeechType) if type_ is None else [SpeechType(type_)],
        )
        items = [await shown_task(self.engine, task) for task in tasks]
        return items, asked.following(items, lambda item: item.id)

    async def all_events(self, request: Request) -> StreamResponse:
        """Stream all of the caller's tasks as they change."""
        reader = self.reader(request)

        async def look(cursor: ChangeCursor) -> Changes[StoredSpeechTask]:
            return await self.repository.changes(
                reader, cursor, rows_max=CHANGES_WALKED_MAX, limit=CHANGES_PAGE
            )

        return self.changes(request, "task", look, partial(shown_task, self.engine))

    async def cancel(self, view: JobView) -> JobView:
        await self.engine.cancel(view.id, org=view.org)
        # Also before the task has a remote id: it may be getting one just now.
        await self.remote_calls.cancel(view.org, view.uuid)
        return await self.engine.get(view.id, org=view.org)

    # For the console and for webhooks

    async def label(self, job: OrgJob, /) -> JobLabel:
        return JobLabel(SPEECH_SERVICE, _LABELS[SPEECH_TYPES[job.view.endpoint]])

    async def input(self, job: OrgJob) -> bytes:
        await super().input(job)  # raises InputNotKept once the input is deleted
        work = _request_of(await self.repository.task(_reader(job.view), job.id))
        given = {
            "description": work.description,
            "voice_id": work.voice_id,
            "transcript" if work.type is SpeechType.CLONE else "text": work.text or None,
            "language": work.language,
            "clone_id": work.clone_id,
        }
        return _encode({name: value for name, value in given.items() if value is not None})

    async def retry(self, job: OrgJob, order: RetryRequest) -> Ticket:
        """A retry is a new generation of the same text."""
        if not job.view.terminal:
            raise JobNotEnded("The task has not ended; it can be retried once it has failed.")
        if not job.is_unsuccessful:
            raise InputNotKept("The task has completed. To speak the text again, submit it again.")
        reader = _reader(job.view)
        task = await self.repository.task(reader, job.id)
        work = _request_of(task)
        try:
            sources = await self.work.find_sources(reader, work, order.idempotency_key)
            # Signed URLs expire, so the payload gets a new URL of the voice.
            payload = await self.work.payload(work, sources)
            return await self.engine.extension(OrgJobRepository).retry(
                job,
                idempotency_key=order.idempotency_key,
                request_id=order.request_id,
                send=self.repository.retrying(reader, job.uuid, task.spoken.voice, payload),
            )
        except VoiceNotFound:
            raise NotRetryable(
                "The task's voice was deleted; submit the text with another voice."
            ) from None
        except InvalidInput:
            raise NotRetryable(
                "The task's clone no longer exists; clone the voice again."
            ) from None
        except SpeechNotConfigured as error:
            raise NotRetryable(str(error)) from None

    async def payload(self, event: DeliveryEvent, view: JobView | None) -> Any:
        if view is None or user_of(view.owner) is None:
            return _expired(event)
        try:
            return await self.show(view)
        except JobNotFound:
            return _expired(event)  # pruned just now

    # Its routes

    def list_routes(self) -> list[Route]:
        """The routes of all tasks."""
        return [
            self.list_route(
                TASKS, "speech_tasks", filters=(self.state_filter("status"), _TYPE), description=""
            ),
            Route(
                methods=("GET",),
                path=f"{TASKS}/events",
                name="speech_tasks_events",
                summary="Stream all of the caller's tasks as they change.",
                description="Begins with the tasks that have not ended, unless it resumes after an "
                "event. Follows the newest 10,000 tasks.",
                handler=self.all_events,
                access=Scope.READ,
                tag=self.product,
                parameters=CHANGES_PARAMETERS,
                responses=(changes_response("task", "a task"),),
            ),
        ]


def _reader(view: JobView) -> SpeechReader:
    """The user whose task it is."""
    return SpeechReader(view.org, user_of(view.owner) or "")


def _request_of(task: StoredSpeechTask) -> SpeechRequest:
    """The request that a stored task was created for."""
    spoken = task.spoken
    return SpeechRequest(
        task.type,
        spoken.language,
        spoken.text,
        voice_id=None if spoken.voice is None else to_text(spoken.voice),
        description=spoken.description,
        clone_id=None if spoken.clone is None else to_text(spoken.clone),
    )


def _expired(event: DeliveryEvent) -> ExpiredTask:
    facts = event.facts
    state = State(facts["state"])
    return ExpiredTask(
        id=to_text(event.subject),
        generation_id=None
        if facts.get("endpoint") == SPEECH_ENDPOINTS[SpeechType.CLONE]
        else to_text(generation_of(event.subject)),
        status=schemas.STATUSES[state],
        error_code=facts.get("error_code"),
        terminal=state.terminal,
    )


_TYPE: Final = Parameter(
    "type", "query", "Only tasks of this type.", {"type": "string", "enum": list(SpeechType)}
)
