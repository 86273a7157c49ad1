"""Collecting: one job, many jobs, a job's events; and asking for a job's end."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.domain.errors import InvalidParameter, NotFound
from coatcheck.domain.identity import Scope
from coatcheck.domain.ids import InvalidId, from_text
from coatcheck.domain.lanes import Lane
from coatcheck.http.explanations import explain_operation
from coatcheck.http.job_responses import (
    CONDITION_PARAMETERS,
    EVENTS,
    NOT_MODIFIED,
    RESUME_PARAMETERS,
    RETRY_AFTER_HEADER,
    WAIT_PARAMETERS,
    may_see,
)
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.queries import read_choice, read_list, read_whole_number
from coatcheck.http.request import Call
from coatcheck.http.response import Reply, StreamReply, json_reply
from coatcheck.http.routing import ULID, Access, Answer, Operation, Parameter
from coatcheck.products.gateway import schemas as words
from coatcheck.products.gateway.context import Scene
from coatcheck.products.gateway.naming import name_of
from coatcheck.products.gateway.submit_routes import BASE

HOSTED: Final = "/api/v1/orgs/{org}/workspaces/{ws}/hosted-services/{service}"
PAGE_ROWS: Final = 50
PAGE_ROWS_MAX: Final = 200
OFFSET_MAX: Final = 10_000
BATCH_IDS_MAX: Final = 200


class Reading:
    """The routes that show jobs."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def status(self, call: Call) -> Reply | StreamReply:
        view = await self._scene.job(call, Scope.READ)
        voice = await self._scene.voice(view.org, call.params["service"])
        return await self._scene.answers.status(call, view, voice)

    async def events(self, call: Call) -> StreamReply:
        view = await self._scene.job(call, Scope.READ)
        voice = await self._scene.voice(view.org, call.params["service"])
        return await self._scene.answers.events(call, view, voice)

    async def explain(self, call: Call) -> Reply:
        return await self._scene.answers.explained(call, await self._scene.job(call, Scope.READ))

    async def cancel(self, call: Call) -> Reply:
        view = await self._scene.job(call, Scope.SUBMIT)
        voice = await self._scene.voice(view.org, call.params["service"])
        return await self._scene.answers.cancel(
            view, voice, elsewhere=self._scene.remote_calls.cancel
        )

    async def page(self, call: Call) -> Reply:
        """Jobs of a service: all of them for an admin, else the caller's own."""
        scene, query, principal = self._scene, call.query, call.principal
        org, name = principal.org, call.params["service"]
        offset = read_whole_number(query, "offset", 0, OFFSET_MAX, default=0)
        limit = read_whole_number(query, "limit", 1, PAGE_ROWS_MAX, default=PAGE_ROWS)
        status = read_choice(query, "status", list(words.STATES))
        lane = read_choice(query, "lane", [lane.value for lane in Lane])
        after = _cursor(query.get("cursor"))
        service = await scene.service(org, name)
        if service is None or service.workspace != call.params["ws"]:
            raise NotFound
        voice = await scene.voice(org, name)
        upstream = service.source == "http"
        page = await scene.engine.page(
            org=org,
            endpoints=[UPSTREAM_ENDPOINT]
            if upstream
            else [spec.engine_endpoint for spec in service.endpoints],
            flow_prefix=f"{name}." if upstream else None,
            states=None if status is None else words.STATES[status],
            lane=None if lane is None else Lane(lane),
            owner=None if Scope.ADMIN in principal.scopes else principal.owner,
            offset=offset,
            limit=limit,
            after=after,
        )
        items = [await voice.job(view) for view in page.items]
        following = items[-1].id if len(items) == limit else None
        return json_reply(words.JobPage(items, page.total, page.total_is_exact, following))

    async def batch_status(self, call: Call) -> Reply:
        """Many jobs at once, in the order asked for."""
        scene, principal = self._scene, call.principal
        org, name = principal.org, call.params["service"]
        ids = read_list(call.query, "job_ids", BATCH_IDS_MAX)
        service = await scene.service(org, name)
        # One that was taken away has jobs still, and no workspace.
        if service is not None and service.workspace != call.params["ws"]:
            raise NotFound
        voice = await scene.voice(org, name)
        items: list[words.Job] = []
        not_found: list[str] = []
        for job_id, view in zip(ids, await scene.engine.get_many(ids, org=org), strict=True):
            named = None if view is None else name_of(view)
            if (
                view is None
                or named is None
                or named.service != name
                or not may_see(principal, view, org)
            ):
                not_found.append(job_id)
            else:
                items.append(await voice.job(view))
        return json_reply(words.BatchStatus(items, not_found))


def _cursor(given: str | None) -> str | None:
    if given is None:
        return None
    try:
        from_text(given)
    except InvalidId as error:
        raise InvalidParameter("cursor", "must be the `next` of a page") from error
    return given


def operations(scene: Scene) -> list[Operation]:
    """The routes by which jobs are read and cancelled."""
    reading = Reading(scene)
    job_path = BASE + "/jobs/{id}"
    return [
        Operation(
            methods=["GET"],
            path=job_path,
            name="job",
            summary="A job as it is, or once it has ended.",
            handler=reading.status,
            access=Access.HANDLER,
            parameters=[*WAIT_PARAMETERS, *CONDITION_PARAMETERS],
            answers=[
                Answer(HTTPStatus.OK, "The job.", words.Job, headers=_JOB_HEADERS),
                Answer(
                    HTTPStatus.ACCEPTED,
                    "The job has not ended within the time to wait.",
                    words.Job,
                    headers=_JOB_HEADERS,
                ),
                NOT_MODIFIED,
            ],
            tag="gateway",
        ),
        Operation(
            methods=["GET"],
            path=job_path + "/events",
            name="job_events",
            summary="A job's states, progress, log lines and output, as Server-Sent Events.",
            handler=reading.events,
            access=Access.HANDLER,
            parameters=RESUME_PARAMETERS,
            answers=[EVENTS],
            tag="gateway",
        ),
        explain_operation(
            job_path, "explain_job", reading.explain, tag="gateway", access=Access.HANDLER
        ),
        Operation(
            methods=["POST"],
            path=job_path + "/cancel",
            name="cancel",
            summary="Ask for a job's end.",
            description="What a remote does for the job is cancelled there, too, if it can be.",
            handler=reading.cancel,
            access=Access.HANDLER,
            answers=[
                Answer(HTTPStatus.OK, "It is cancelled.", words.Job),
                Answer(HTTPStatus.ACCEPTED, "It runs, and was told to stop.", words.Job),
                Answer(HTTPStatus.CONFLICT, "It has already ended.", Problem, MEDIA_TYPE),
            ],
            tag="gateway",
        ),
        Operation(
            methods=["GET"],
            path=HOSTED + "/jobs",
            name="jobs",
            summary="Jobs of a service, newest first.",
            description="An admin sees all of the organisation's; others see their own.",
            handler=reading.page,
            access=Scope.READ,
            operable=True,
            parameters=_PAGE_PARAMETERS,
            answers=[Answer(HTTPStatus.OK, "A page of jobs.", words.JobPage)],
            tag="gateway",
        ),
        Operation(
            methods=["GET"],
            path=HOSTED + "/jobs/batch-status",
            name="batch_status",
            summary="Many jobs in one request.",
            handler=reading.batch_status,
            access=Scope.READ,
            operable=True,
            parameters=[
                Parameter(
                    "job_ids",
                    "query",
                    f"Ids with commas between, at most {BATCH_IDS_MAX}.",
                    {"type": "string", "pattern": "[^,]"},
                    required=True,
                )
            ],
            answers=[Answer(HTTPStatus.OK, "Those that were found.", words.BatchStatus)],
            tag="gateway",
        ),
    ]


_JOB_HEADERS: Final = RETRY_AFTER_HEADER | {
    "ETag": "Changes with every state.",
    "Preference-Applied": "What was made of `Prefer`.",
}
_PAGE_PARAMETERS: Final = (
    Parameter(
        "offset",
        "query",
        "How many to pass over. For a long way use `cursor`.",
        {"type": "integer", "minimum": 0, "maximum": OFFSET_MAX},
    ),
    Parameter(
        "limit",
        "query",
        "How many to show.",
        {"type": "integer", "minimum": 1, "maximum": PAGE_ROWS_MAX, "default": PAGE_ROWS},
    ),
    Parameter(
        "status",
        "query",
        "Only jobs of this status.",
        {"type": "string", "enum": list(words.STATES)},
    ),
    Parameter(
        "lane",
        "query",
        "Only jobs of this lane.",
        {"type": "string", "enum": [lane.value for lane in Lane]},
    ),
    Parameter("cursor", "query", "The `next` of the page before.", ULID),
)
