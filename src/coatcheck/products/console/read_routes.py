"""One job: as it is, what happened to it, what it said, what it was given; and as it goes on."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from coatcheck.core.org_jobs import INPUT_GONE, Console
from coatcheck.domain.errors import InputNotKept
from coatcheck.domain.identity import Scope
from coatcheck.domain.org_jobs import LogEntry
from coatcheck.http.explanations import explain_operation
from coatcheck.http.job_responses import (
    CONDITION_PARAMETERS,
    EVENTS,
    NOT_MODIFIED,
    RESUME_PARAMETERS,
    RETRY_AFTER_HEADER,
    WAIT_PARAMETERS,
)
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.queries import read_whole_number
from coatcheck.http.request import Call
from coatcheck.http.response import JSON, Reply, StreamReply, json_reply
from coatcheck.http.routing import Answer, Operation, Parameter
from coatcheck.products.console import schemas as words
from coatcheck.products.console.context import JOB, TAG, Scene
from coatcheck.products.console.timeline import timeline

LOG_ROWS: Final = 100
LOG_ROWS_MAX: Final = 1_000
_SEQ_MAX: Final = 10**18 - 1


class Reading:
    """The routes that show a job."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def status(self, call: Call) -> Reply | StreamReply:
        scene = self._scene
        return await scene.answers.status(call, (await scene.job(call)).view, scene.voice)

    async def events(self, call: Call) -> StreamReply:
        scene = self._scene
        return await scene.answers.events(call, (await scene.job(call)).view, scene.voice)

    async def explain(self, call: Call) -> Reply:
        scene = self._scene
        return await scene.answers.explained(call, (await scene.job(call)).view)

    async def timeline(self, call: Call) -> Reply:
        job = await self._scene.job(call)
        attempts, spawned_at = await self._scene.engine.extension(Console).attempts(
            job.view.org, job.uuid
        )
        return json_reply(words.Timeline(timeline(job, attempts, spawned_at)))

    async def log(self, call: Call) -> Reply:
        after = read_whole_number(call.query, "after", 0, _SEQ_MAX, default=0)
        limit = read_whole_number(call.query, "limit", 1, LOG_ROWS_MAX, default=LOG_ROWS)
        job = await self._scene.job(call)
        entries, following = await self._scene.engine.extension(Console).log(
            job.view.org, job.uuid, after=after, limit=limit
        )
        return json_reply(words.LogPage([_shown(entry) for entry in entries], following))

    async def input(self, call: Call) -> Reply:
        """What the job's caller handed in; not what its payload has besides, such as a target's
        secrets."""
        job = await self._scene.job(call)
        if not job.input_kept:
            raise InputNotKept(INPUT_GONE)
        given = await self._scene.desks.of(job).input(job)
        return Reply(HTTPStatus.OK, given, [JSON, (b"cache-control", b"no-store")])


def _shown(entry: LogEntry) -> words.LogItem:
    rest: dict[str, Any] = dict(entry.data)
    level = rest.pop("level", None) if entry.kind == "log" else None
    message = rest.pop("message", None)
    return words.LogItem(
        seq=entry.seq,
        at=entry.at,
        kind=entry.kind,  # type: ignore[arg-type]  # the statement asks for these kinds
        level=level if isinstance(level, str) else None,
        message="" if message is None else str(message),
        data=rest or None,
    )


JOB_ID: Final = Parameter(
    "id",
    "path",
    "The job's id; of a task, the 32 hexadecimal digits that its batch shows, too.",
    {"type": "string", "pattern": "^([0-7][0-9A-HJKMNP-TV-Z]{25}|[0-9a-f]{32})$"},
)
_HEADERS: Final = RETRY_AFTER_HEADER | {
    "ETag": "Changes with every state.",
    "Preference-Applied": "What was made of `Prefer`.",
}


def operations(scene: Scene) -> list[Operation]:
    reading = Reading(scene)
    return [
        explain_operation(
            JOB,
            "explain_org_job",
            reading.explain,
            tag=TAG,
            parameters=(JOB_ID,),
            operable=True,
        ),
        Operation(
            methods=("GET",),
            path=JOB,
            name="org_job",
            summary="A job as it is, or once it has ended.",
            handler=reading.status,
            access=Scope.READ,
            operable=True,
            tag=TAG,
            parameters=(JOB_ID, *WAIT_PARAMETERS, *CONDITION_PARAMETERS),
            answers=(
                Answer(HTTPStatus.OK, "The job.", words.WholeOrgJob, headers=_HEADERS),
                Answer(
                    HTTPStatus.ACCEPTED,
                    "The job has not ended within the time to wait.",
                    words.WholeOrgJob,
                    headers=_HEADERS,
                ),
                NOT_MODIFIED,
            ),
        ),
        Operation(
            methods=("GET",),
            path=f"{JOB}/events",
            name="org_job_events",
            summary="A job's states, progress, log lines and output, as Server-Sent Events.",
            handler=reading.events,
            access=Scope.READ,
            operable=True,
            tag=TAG,
            parameters=(JOB_ID, *RESUME_PARAMETERS),
            answers=(EVENTS,),
        ),
        Operation(
            methods=("GET",),
            path=f"{JOB}/timeline",
            name="org_job_timeline",
            summary="What happened to a job, in order.",
            description="Of its first hundred attempts, those that did not complete included.",
            handler=reading.timeline,
            access=Scope.READ,
            operable=True,
            tag=TAG,
            parameters=(JOB_ID,),
            answers=(Answer(HTTPStatus.OK, "The timeline.", words.Timeline),),
        ),
        Operation(
            methods=("GET",),
            path=f"{JOB}/log",
            name="org_job_log",
            summary="What a job said: log lines, alerts, and what became of its attempts.",
            description="A page looks at 5,000 events at most, output included: one may be short, "
            "or empty, and still have a `next`.",
            handler=reading.log,
            access=Scope.READ,
            operable=True,
            tag=TAG,
            parameters=(
                JOB_ID,
                Parameter(
                    "after",
                    "query",
                    "Go on after this `seq`.",
                    {"type": "integer", "minimum": 0, "maximum": _SEQ_MAX},
                ),
                Parameter(
                    "limit",
                    "query",
                    "How many to show.",
                    {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": LOG_ROWS_MAX,
                        "default": LOG_ROWS,
                    },
                ),
            ),
            answers=(Answer(HTTPStatus.OK, "A page of the log.", words.LogPage),),
        ),
        Operation(
            methods=("GET",),
            path=f"{JOB}/input",
            name="org_job_input",
            summary="What a job was handed in with, while that is kept.",
            description="Until it has ended; and if it failed or was cancelled until it expires, "
            "unless its endpoint says otherwise (`keep_input`).",
            handler=reading.input,
            access=Scope.READ,
            operable=True,
            tag=TAG,
            parameters=(JOB_ID,),
            answers=(
                Answer(HTTPStatus.OK, "The input, as JSON.", schema={}),
                Answer(HTTPStatus.CONFLICT, "It is gone: `input_not_kept`.", Problem, MEDIA_TYPE),
            ),
        ),
    ]
