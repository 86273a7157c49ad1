"""Collecting: a task, all tasks, a task's events; and asking for a task's end.

To read a task that runs is to look how it stands over there: whoever asks may be the one who
finalizes it.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Final

from coatcheck.domain.changes import ChangeCursor, Changes
from coatcheck.domain.errors import JobAlreadyEnded
from coatcheck.domain.identity import Scope
from coatcheck.http.change_stream import CHANGES_PAGE, CHANGES_WALKED_MAX
from coatcheck.http.explanations import explain_operation
from coatcheck.http.job_responses import (
    CHANGES_PARAMETERS,
    CONDITION_PARAMETERS,
    EVENTS,
    NOT_MODIFIED,
    RESUME_PARAMETERS,
    RETRY_AFTER_HEADER,
    WAIT_PARAMETERS,
    changes_answer,
    etag,
)
from coatcheck.http.prefer_header import read_preferences
from coatcheck.http.queries import read_choice, read_whole_number
from coatcheck.http.request import Call
from coatcheck.http.response import Reply, StreamReply, json_reply
from coatcheck.http.routing import ULID, Answer, Operation, Parameter
from coatcheck.products.speech import schemas as words
from coatcheck.products.speech.context import PAGE_ROWS, PAGE_ROWS_MAX, Scene, read_cursor
from coatcheck.products.speech.model import SpeechTask, SpeechType, generation_of
from coatcheck.products.speech.presenter import TASKS, shown_task
from coatcheck.products.speech.repository import SpeechQueries
from coatcheck.products.speech.submit_routes import TAG

TASK: Final = TASKS + "/{id}"
CANCEL_WAIT_SECONDS: Final = 5.0


class Reading:
    """The routes that show tasks."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def status(self, call: Call) -> Reply | StreamReply:
        """Poll, and finalize if it is done. Who waits for the end has it looked for by others."""
        scene = self._scene
        task = await scene.task(call)
        if not task.view.terminal and read_preferences(call).wait is None:
            await scene.remote_calls.look(task.view.org, task.view.uuid)
            task = await scene.task(call)
        return await scene.answers.status(call, task.view, scene.voice(call))

    async def events(self, call: Call) -> StreamReply:
        scene = self._scene
        task = await scene.task(call)
        return await scene.answers.events(call, task.view, scene.voice(call))

    async def all_events(self, call: Call) -> StreamReply:
        """All of the caller's tasks, as they change."""
        scene, reader = self._scene, self._scene.reader(call)

        async def look(cursor: ChangeCursor) -> Changes[SpeechTask]:
            return await scene.engine.extension(SpeechQueries).changes(
                reader, cursor, rows_max=CHANGES_WALKED_MAX, limit=CHANGES_PAGE
            )

        return scene.answers.changes(call, "task", look, partial(shown_task, scene.engine))

    async def explain(self, call: Call) -> Reply:
        task = await self._scene.task(call)
        return await self._scene.answers.explained(call, task.view)

    async def cancel(self, call: Call) -> Reply:
        """A task that has ended is answered as it is."""
        scene = self._scene
        task = await scene.task(call)
        if not task.view.terminal:
            try:
                await scene.engine.cancel(task.view.id, org=task.view.org)
            except JobAlreadyEnded:
                pass  # just now: as it is
            else:
                await scene.remote_calls.cancel(task.view.org, task.view.uuid)
                # Whoever looks at it at this very moment ends it instead.
                await scene.engine.wait(
                    task.view.id, org=task.view.org, timeout=CANCEL_WAIT_SECONDS
                )
            task = await scene.task(call)
        status = HTTPStatus.OK if task.view.terminal else HTTPStatus.ACCEPTED
        body = await shown_task(scene.engine, task)
        return json_reply(body, status, [(b"etag", etag(task.view))])

    async def page(self, call: Call) -> Reply:
        """The caller's tasks."""
        scene, query = self._scene, call.query
        reader = scene.reader(call)
        limit = read_whole_number(query, "limit", 1, PAGE_ROWS_MAX, default=PAGE_ROWS)
        choice = read_choice(query, "status", list(words.SpeechStatus))
        type_ = read_choice(query, "type", list(SpeechType))
        cursor = read_cursor(query.get("cursor"))
        tasks = await scene.engine.extension(SpeechQueries).tasks(
            reader,
            after=None if cursor is None else generation_of(cursor),
            states=None if choice is None else words.ENGINE_STATES[words.SpeechStatus(choice)],
            types=tuple(SpeechType) if type_ is None else [SpeechType(type_)],
            limit=limit,
        )
        items = [await shown_task(scene.engine, task) for task in tasks]
        return json_reply(
            words.SpeechTaskPage(items, items[-1].id if len(items) == limit else None)
        )


def operations(scene: Scene) -> list[Operation]:
    reading = Reading(scene)
    task_id = Parameter("id", "path", "The task's id.", ULID)
    return [
        Operation(
            methods=("GET",),
            path=TASKS,
            name="speech_tasks",
            summary="The caller's tasks, newest first.",
            handler=reading.page,
            access=Scope.READ,
            tag=TAG,
            parameters=(*PAGE_PARAMETERS, _STATUS, _TYPE),
            answers=(Answer(HTTPStatus.OK, "A page of tasks.", words.SpeechTaskPage),),
        ),
        Operation(
            methods=("GET",),
            path=f"{TASKS}/events",
            name="speech_tasks_events",
            summary="All of the caller's tasks, as they change.",
            description="Begins with those that have not ended, unless it goes on behind an event. "
            "Follows the newest 10,000 tasks.",
            handler=reading.all_events,
            access=Scope.READ,
            tag=TAG,
            parameters=CHANGES_PARAMETERS,
            answers=(changes_answer("task", "a task"),),
        ),
        Operation(
            methods=("GET",),
            path=TASK,
            name="speech_task",
            summary="A task as it is, or once it has ended.",
            description="Asks the remote how it stands, unless somebody just did, and stores the "
            "audio if it is there.",
            handler=reading.status,
            access=Scope.READ,
            tag=TAG,
            parameters=(task_id, *WAIT_PARAMETERS, *CONDITION_PARAMETERS),
            answers=(
                Answer(HTTPStatus.OK, "The task.", words.SpeechTask, headers=_TASK_HEADERS),
                Answer(
                    HTTPStatus.ACCEPTED,
                    "The task has not ended within the time to wait.",
                    words.SpeechTask,
                    headers=_TASK_HEADERS,
                ),
                NOT_MODIFIED,
            ),
        ),
        Operation(
            methods=("GET",),
            path=f"{TASK}/events",
            name="speech_task_events",
            summary="A task's states and progress, as they come.",
            handler=reading.events,
            access=Scope.READ,
            tag=TAG,
            parameters=(task_id, *RESUME_PARAMETERS),
            answers=(EVENTS,),
        ),
        explain_operation(
            TASK, "explain_speech_task", reading.explain, tag=TAG, parameters=(task_id,)
        ),
        Operation(
            methods=("POST",),
            path=f"{TASK}/cancel",
            name="cancel_speech_task",
            summary="Ask for a task's end.",
            description="At the remote as far as it can be reached. A task that has ended is "
            "answered as it is.",
            handler=reading.cancel,
            access=Scope.SUBMIT,
            tag=TAG,
            parameters=(task_id,),
            answers=(
                Answer(
                    HTTPStatus.OK, "The task is cancelled, or had ended before.", words.SpeechTask
                ),
                Answer(HTTPStatus.ACCEPTED, "The task was told to stop.", words.SpeechTask),
            ),
        ),
    ]


_TASK_HEADERS: Final = RETRY_AFTER_HEADER | {
    "ETag": "Changes with every state.",
    "Preference-Applied": "What was made of `Prefer`.",
}
_STATUS: Final = Parameter(
    "status",
    "query",
    "Only tasks that stand so.",
    {"type": "string", "enum": list(words.SpeechStatus)},
)
_TYPE: Final = Parameter(
    "type", "query", "Only tasks of this type.", {"type": "string", "enum": list(SpeechType)}
)
PAGE_PARAMETERS: Final = (
    Parameter("cursor", "query", "The `next` of the page before.", ULID),
    Parameter(
        "limit",
        "query",
        "How many to show.",
        {"type": "integer", "minimum": 1, "maximum": PAGE_ROWS_MAX, "default": PAGE_ROWS},
    ),
)
