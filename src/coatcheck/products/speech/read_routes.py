"""Routes that read and cancel tasks: one task, all tasks, their events.

Reading a running task polls the remote, and stores the result if there is one. So a reader may be
the one who completes the task.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Final

from coatcheck.domain.changes import ChangeCursor, Changes
from coatcheck.domain.errors import JobAlreadyEnded
from coatcheck.domain.tenants import Scope
from coatcheck.http.event_stream import CHANGES_PAGE, CHANGES_WALKED_MAX
from coatcheck.http.explanations import explain_route
from coatcheck.http.job_responses import (
    CHANGES_PARAMETERS,
    CONDITION_PARAMETERS,
    EVENTS,
    NOT_MODIFIED,
    RESUME_PARAMETERS,
    RETRY_AFTER_HEADER,
    WAIT_PARAMETERS,
    changes_response,
    etag,
)
from coatcheck.http.pages import PAGE_PARAMETERS, read_page
from coatcheck.http.parameters import read_choice, read_preferences
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse, json_response
from coatcheck.http.routing import ULID, Parameter, ResponseSpec, Route
from coatcheck.products.speech import schemas
from coatcheck.products.speech.context import SpeechContext
from coatcheck.products.speech.model import SpeechType, StoredSpeechTask, generation_of
from coatcheck.products.speech.presenter import TASKS, shown_task
from coatcheck.products.speech.repository import SpeechRepository
from coatcheck.products.speech.submit_routes import TAG

TASK: Final = TASKS + "/{id}"
CANCEL_WAIT_SECONDS: Final = 5.0


class SpeechReadRoutes:
    """The routes that show tasks."""

    def __init__(self, context: SpeechContext) -> None:
        self._context = context

    async def status(self, request: Request) -> Response | StreamResponse:
        """Poll the remote, and complete the task if it is done. For a caller who waits for the end,
        the maintenance loop polls instead."""
        context = self._context
        task = await context.task(request)
        if not task.view.terminal and read_preferences(request).wait is None:
            await context.remote_calls.look(task.view.org, task.view.uuid)
            task = await context.task(request)
        return await context.responses.status(request, task.view, context.presenter(request))

    async def events(self, request: Request) -> StreamResponse:
        context = self._context
        task = await context.task(request)
        return await context.responses.events(request, task.view, context.presenter(request))

    async def all_events(self, request: Request) -> StreamResponse:
        """Stream all of the caller's tasks as they change."""
        context, reader = self._context, self._context.reader(request)

        async def look(cursor: ChangeCursor) -> Changes[StoredSpeechTask]:
            return await context.engine.extension(SpeechRepository).changes(
                reader, cursor, rows_max=CHANGES_WALKED_MAX, limit=CHANGES_PAGE
            )

        return context.responses.changes(request, "task", look, partial(shown_task, context.engine))

    async def explain(self, request: Request) -> Response:
        task = await self._context.task(request)
        return await self._context.responses.explained(request, task.view)

    async def cancel(self, request: Request) -> Response:
        """Cancel a task. A task that has ended is returned unchanged."""
        context = self._context
        task = await context.task(request)
        if not task.view.terminal:
            try:
                await context.engine.cancel(task.view.id, org=task.view.org)
            except JobAlreadyEnded:
                pass  # it ended just now: return it unchanged
            else:
                await context.remote_calls.cancel(task.view.org, task.view.uuid)
                # A concurrent poll may be the one that ends the task.
                await context.engine.wait(
                    task.view.id, org=task.view.org, timeout=CANCEL_WAIT_SECONDS
                )
            task = await context.task(request)
        status = HTTPStatus.OK if task.view.terminal else HTTPStatus.ACCEPTED
        body = await shown_task(context.engine, task)
        return json_response(body, status, [(b"etag", etag(task.view))])

    async def page(self, request: Request) -> Response:
        """The caller's tasks."""
        context, query = self._context, request.query
        reader = context.reader(request)
        asked = read_page(request)
        choice = read_choice(query, "status", list(schemas.SpeechStatus))
        type_ = read_choice(query, "type", list(SpeechType))
        tasks = await context.engine.extension(SpeechRepository).tasks(
            reader,
            after=None if asked.after is None else generation_of(asked.after),
            states=None if choice is None else schemas.ENGINE_STATES[schemas.SpeechStatus(choice)],
            types=tuple(SpeechType) if type_ is None else [SpeechType(type_)],
            limit=asked.limit,
        )
        items = [await shown_task(context.engine, task) for task in tasks]
        return json_response(
            schemas.SpeechTaskPage(items, asked.following(items, lambda item: item.id))
        )


def routes(context: SpeechContext) -> list[Route]:
    reading = SpeechReadRoutes(context)
    task_id = Parameter("id", "path", "The task's id.", ULID)
    return [
        Route(
            methods=("GET",),
            path=TASKS,
            name="speech_tasks",
            summary="List the caller's tasks, newest first.",
            handler=reading.page,
            access=Scope.READ,
            tag=TAG,
            parameters=(*PAGE_PARAMETERS, _STATUS, _TYPE),
            responses=(ResponseSpec(HTTPStatus.OK, "A page of tasks.", schemas.SpeechTaskPage),),
        ),
        Route(
            methods=("GET",),
            path=f"{TASKS}/events",
            name="speech_tasks_events",
            summary="Stream all of the caller's tasks as they change.",
            description="Begins with the tasks that have not ended, unless it resumes after an "
            "event. Follows the newest 10,000 tasks.",
            handler=reading.all_events,
            access=Scope.READ,
            tag=TAG,
            parameters=CHANGES_PARAMETERS,
            responses=(changes_response("task", "a task"),),
        ),
        Route(
            methods=("GET",),
            path=TASK,
            name="speech_task",
            summary="Read a task, or wait for its end.",
            description="Polls the remote, unless it was polled just now, and stores the audio if "
            "it is ready.",
            handler=reading.status,
            access=Scope.READ,
            tag=TAG,
            parameters=(task_id, *WAIT_PARAMETERS, *CONDITION_PARAMETERS),
            responses=(
                ResponseSpec(HTTPStatus.OK, "The task.", schemas.SpeechTask, headers=_TASK_HEADERS),
                ResponseSpec(
                    HTTPStatus.ACCEPTED,
                    "The task did not end within the requested wait.",
                    schemas.SpeechTask,
                    headers=_TASK_HEADERS,
                ),
                NOT_MODIFIED,
            ),
        ),
        Route(
            methods=("GET",),
            path=f"{TASK}/events",
            name="speech_task_events",
            summary="Stream a task's states and progress as Server-Sent Events.",
            handler=reading.events,
            access=Scope.READ,
            tag=TAG,
            parameters=(task_id, *RESUME_PARAMETERS),
            responses=(EVENTS,),
        ),
        explain_route(TASK, "explain_speech_task", reading.explain, tag=TAG, parameters=(task_id,)),
        Route(
            methods=("POST",),
            path=f"{TASK}/cancel",
            name="cancel_speech_task",
            summary="Cancel a task.",
            description="Also cancels the work at the remote, if that can be reached. A task that "
            "has ended is returned unchanged.",
            handler=reading.cancel,
            access=Scope.SUBMIT,
            tag=TAG,
            parameters=(task_id,),
            responses=(
                ResponseSpec(
                    HTTPStatus.OK, "The task is cancelled, or had ended before.", schemas.SpeechTask
                ),
                ResponseSpec(
                    HTTPStatus.ACCEPTED, "The task was asked to stop.", schemas.SpeechTask
                ),
            ),
        ),
    ]


_TASK_HEADERS: Final = RETRY_AFTER_HEADER | {
    "ETag": "Changes with every state.",
    "Preference-Applied": "The preferences of `Prefer` that were applied.",
}
_STATUS: Final = Parameter(
    "status",
    "query",
    "Only tasks with this status.",
    {"type": "string", "enum": list(schemas.SpeechStatus)},
)
_TYPE: Final = Parameter(
    "type", "query", "Only tasks of this type.", {"type": "string", "enum": list(SpeechType)}
)
