"""Collecting: a job, all jobs, a job's events; and asking for a job's end."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from coatcheck.domain.errors import InvalidParameter
from coatcheck.domain.identity import Scope
from coatcheck.domain.ids import InvalidId, from_text
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
from coatcheck.http.queries import read_choice, read_whole_number
from coatcheck.http.request import Call
from coatcheck.http.response import Reply, StreamReply, json_reply
from coatcheck.http.routing import ULID, Answer, Operation, Parameter
from coatcheck.products.llm import schemas as words
from coatcheck.products.llm.context import Scene
from coatcheck.products.llm.model import LLM_ENDPOINTS, MODEL_NAME_CHARACTERS_MAX, model_name
from coatcheck.products.llm.presenter import JOBS

JOB: Final = JOBS + "/{id}"
PAGE_ROWS: Final = 50
PAGE_ROWS_MAX: Final = 200


class Reading:
    """The routes that show jobs."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def status(self, call: Call) -> Reply | StreamReply:
        scene = self._scene
        look = await scene.answers.look(call, await scene.job(call))
        headers = scene.answers.paced_headers(look)
        if look.is_known:
            return Reply(HTTPStatus.NOT_MODIFIED, b"", headers)
        return await scene.voice.reply(look.view, headers, look.status)

    async def events(self, call: Call) -> StreamReply:
        scene = self._scene
        return await scene.answers.events(call, await scene.job(call), scene.voice)

    async def explain(self, call: Call) -> Reply:
        return await self._scene.answers.explained(call, await self._scene.job(call))

    async def cancel(self, call: Call) -> Reply:
        scene = self._scene
        return await scene.answers.cancel(await scene.job(call), scene.voice)

    async def page(self, call: Call) -> Reply:
        """The caller's jobs; for an admin, all of the organisation's."""
        scene, principal, query = self._scene, call.principal, call.query
        limit = read_whole_number(query, "limit", 1, PAGE_ROWS_MAX, default=PAGE_ROWS)
        choice = read_choice(query, "state", list(words.LlmState))
        wanted = None if choice is None else words.LlmState(choice)
        model = _model(query.get("model"))
        page = await scene.engine.page(
            org=principal.org,
            endpoints=list(LLM_ENDPOINTS.values()),
            flow_prefix=model,
            states=None if wanted is None else words.ENGINE_STATES[wanted],
            owner=None if Scope.ADMIN in principal.scopes else principal.owner,
            after=_cursor(query.get("cursor")),
            limit=limit,
        )
        shown = [await scene.voice.item(view) for view in page.items]
        items = [
            item
            for item in shown
            # A job that was just claimed is `queued` or `loading`: its row does not say which.
            if (wanted is None or item.state is wanted)
            # One model's name may begin with another's.
            and (model is None or item.model == model)
        ]
        following = shown[-1].job_id if len(shown) == limit else None
        return json_reply(words.JobPage(items, following))


def _model(given: str | None) -> str | None:
    if given is None:
        return None
    try:
        return model_name(given)
    except InvalidParameter as error:
        raise InvalidParameter(error.field, error.issue) from None


def _cursor(given: str | None) -> str | None:
    if given is None:
        return None
    try:
        from_text(given)
    except InvalidId as error:
        raise InvalidParameter("cursor", "must be the `next` of a page") from error
    return given


def operations(scene: Scene) -> list[Operation]:
    reading = Reading(scene)
    job_id = Parameter("id", "path", "The job's id.", ULID)
    return [
        Operation(
            methods=("GET",),
            path=JOBS,
            name="chats",
            summary="Jobs, newest first.",
            description="An admin sees all of the organisation's; others see their own.",
            handler=reading.page,
            access=Scope.READ,
            tag="llm",
            parameters=_PAGE_PARAMETERS,
            answers=(Answer(HTTPStatus.OK, "A page of jobs.", words.JobPage),),
        ),
        Operation(
            methods=("GET",),
            path=JOB,
            name="chat",
            summary="A job as it is, or once it has ended.",
            handler=reading.status,
            access=Scope.READ,
            tag="llm",
            parameters=(job_id, *WAIT_PARAMETERS, *CONDITION_PARAMETERS),
            answers=(
                Answer(HTTPStatus.OK, "The job.", words.Job, headers=_JOB_HEADERS),
                Answer(
                    HTTPStatus.ACCEPTED,
                    "The job has not ended within the time to wait.",
                    words.Job,
                    headers=_JOB_HEADERS,
                ),
                NOT_MODIFIED,
            ),
        ),
        Operation(
            methods=("GET",),
            path=f"{JOB}/events",
            name="chat_events",
            summary="A job's states and what its model says, as they come.",
            description="Each `chunk` is one object of the target's stream, as it sent it. "
            '`{"coatcheck": {"restarted": true, ...}}` among them says that the job begins again, '
            "and that all chunks before are void.",
            handler=reading.events,
            access=Scope.READ,
            tag="llm",
            parameters=(job_id, *RESUME_PARAMETERS),
            answers=(EVENTS,),
        ),
        explain_operation(JOB, "explain_chat", reading.explain, tag="llm", parameters=(job_id,)),
        Operation(
            methods=("POST",),
            path=f"{JOB}/cancel",
            name="cancel_chat",
            summary="Ask for a job's end.",
            handler=reading.cancel,
            access=Scope.SUBMIT,
            tag="llm",
            parameters=(job_id,),
            answers=(
                Answer(HTTPStatus.OK, "The job is cancelled.", words.Job),
                Answer(HTTPStatus.ACCEPTED, "The job was told to stop.", words.Job),
                Answer(HTTPStatus.CONFLICT, "The job has ended.", Problem, MEDIA_TYPE),
            ),
        ),
    ]


_JOB_HEADERS: Final = RETRY_AFTER_HEADER | {
    "ETag": "Changes with every state.",
    "Preference-Applied": "What was made of `Prefer`.",
}
_PAGE_PARAMETERS: Final = (
    Parameter("cursor", "query", "The `next` of the page before.", ULID),
    Parameter(
        "limit",
        "query",
        "How many to show.",
        {"type": "integer", "minimum": 1, "maximum": PAGE_ROWS_MAX, "default": PAGE_ROWS},
    ),
    Parameter(
        "state",
        "query",
        "Only jobs in this state.",
        {"type": "string", "enum": list(words.LlmState)},
    ),
    Parameter(
        "model",
        "query",
        "Only jobs that ask this model.",
        {"type": "string", "minLength": 1, "maxLength": MODEL_NAME_CHARACTERS_MAX},
    ),
)
