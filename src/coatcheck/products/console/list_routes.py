"""Routes that list an organisation's jobs: page by page, by id or key, or as they change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from uuid import UUID

from coatcheck.domain.changes import ChangeCursor, Changes
from coatcheck.domain.errors import InvalidParameter, JobNotFound
from coatcheck.domain.ids import to_text
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import IDEMPOTENCY_KEY_CHARACTERS_MAX
from coatcheck.domain.listing import FIRST_PAGE
from coatcheck.domain.org_jobs import ENDED, LIVE, OrgJob, OrgJobFilter
from coatcheck.domain.states import State
from coatcheck.domain.tenants import Principal, Scope
from coatcheck.http.event_stream import CHANGES_PAGE, CHANGES_WALKED_MAX
from coatcheck.http.job_adapters import JobAdapters
from coatcheck.http.pages import JOB_PAGE_PARAMETERS, read_job_page
from coatcheck.http.parameters import read_choice
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse, json_response
from coatcheck.http.routing import Parameter, ResponseSpec, Route
from coatcheck.http.watching import CHANGES_PARAMETERS, changes_response
from coatcheck.products.console import schemas
from coatcheck.products.console.jobs import JOBS, TAG, OrgJobs

_TEXT_CHARACTERS_MAX: Final = 300
_STATES: Final[Mapping[str, Sequence[State]]] = {
    "live": LIVE,
    "ended": ENDED,
    **{state.value: (state,) for state in State},
}
_LANES: Final = [lane.value for lane in Lane]


def query_filter(request: Request, adapters: JobAdapters) -> OrgJobFilter:
    """The filter in the query of a list. Raises InvalidParameter."""
    query = request.query
    lane = read_choice(query, "lane", _LANES)
    surface = read_choice(query, "surface", [*adapters.all])
    return job_filter(
        request.principal,
        adapters,
        states=read_states(query.get("state"), "query"),
        lane=None if lane is None else Lane(lane),
        surface=surface,
        service=_text(query.get("service"), "service"),
        endpoint=_text(query.get("endpoint"), "endpoint"),
        owner=_text(query.get("owner"), "owner"),
        error_code=_text(query.get("error_code"), "error_code"),
    )


def job_filter(
    principal: Principal,
    adapters: JobAdapters,
    *,
    surface: str | None,
    service: str | None,
    **others: Any,
) -> OrgJobFilter:
    """The filter for a surface, a service, both or all, restricted to what the caller may see."""
    services: Sequence[str] | None = None if service is None else [service]
    not_these: Sequence[str] | None = None
    if surface is not None:
        own, not_these = adapters.services(surface)
        if own is not None:
            services = [each for each in own if service in (None, each)]
    return OrgJobFilter(
        org=principal.org,
        services=services,
        other_services_than=not_these,
        reader=principal.lists_jobs_of,
        **others,
    )


def read_states(given: str | None, place: str) -> Sequence[State] | None:
    """Parse states separated by commas; ``live`` and ``ended`` stand for several."""
    if given is None:
        return None
    states: list[State] = []
    for word in given.split(","):
        group = _STATES.get(word)
        if group is None:
            allowed = ", ".join(_STATES)
            raise InvalidParameter("state", f"must be of {allowed}, separated by commas", place)
        states += group
    return list(dict.fromkeys(states))


def _text(given: str | None, name: str) -> str | None:
    if given is None:
        return None
    if not 1 <= len(given) <= _TEXT_CHARACTERS_MAX or "\0" in given:
        raise InvalidParameter(name, f"must have 1 to {_TEXT_CHARACTERS_MAX} characters, no NUL")
    return given


_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": _TEXT_CHARACTERS_MAX}
_STATE_WORD: Final = "|".join(_STATES)
_BY_STATE_AND_LANE: Final = (
    Parameter(
        "state",
        "query",
        "Only jobs in these states, separated by commas; `live` stands for all states of jobs "
        "that have not ended, `ended` for the others.",
        {"type": "string", "pattern": f"^({_STATE_WORD})(,({_STATE_WORD}))*$", "maxLength": 200},
    ),
    Parameter("lane", "query", "Only jobs of this lane.", {"type": "string", "enum": _LANES}),
)
_BY_OTHERS: Final = (
    Parameter("service", "query", "Only jobs of this service.", _TEXT),
    Parameter(
        "endpoint",
        "query",
        "Only jobs of this `engine_endpoint`; or of this endpoint of a registered service, such as "
        "`docs.v1.post__analyze`.",
        _TEXT,
    ),
    Parameter("owner", "query", "Only jobs of this owner, as a job shows it.", _TEXT),
    Parameter("error_code", "query", "Only jobs with this error.", _TEXT),
)


def filter_parameters(adapters: JobAdapters) -> Sequence[Parameter]:
    """The query parameters that filter a list."""
    surface = Parameter(
        "surface",
        "query",
        "Only jobs of this product.",
        {"type": "string", "enum": [*adapters.all]},
    )
    return (*_BY_STATE_AND_LANE, surface, *_BY_OTHERS)


class OrgJobListRoutes:
    """The routes that list jobs."""

    def __init__(self, jobs: OrgJobs) -> None:
        self._jobs = jobs

    async def page(self, request: Request) -> Response:
        """Jobs, newest first: all for an admin; for others their own and those open to anyone."""
        jobs, query = self._jobs, request.query
        asked = read_job_page(request)
        job_filter = query_filter(request, jobs.adapters)
        text = query.get("q")
        if text is not None:
            found = await self._search(request, text)
            return json_response(
                schemas.OrgJobPageBody([await jobs.presenter.item(job) for job in found], None)
            )
        page = await jobs.repository.page(job_filter, asked)
        items = [await jobs.presenter.item(job) for job in page.items]
        following = None if page.following is None else to_text(page.following)
        return json_response(schemas.OrgJobPageBody(items, following))

    async def events(self, request: Request) -> StreamResponse:
        """Stream the jobs of ``page`` as they change."""
        jobs, principal = self._jobs, request.principal

        async def look(cursor: ChangeCursor) -> Changes[OrgJob]:
            return await jobs.repository.changes(
                principal.org,
                principal.lists_jobs_of,
                cursor,
                rows_max=CHANGES_WALKED_MAX,
                limit=CHANGES_PAGE,
            )

        return jobs.changes(request, "job", look, jobs.presenter.item)

    async def _search(self, request: Request, text: str) -> list[OrgJob]:
        """The jobs with this id or idempotency key, or, among the newest jobs, this request id."""
        if not 1 <= len(text) <= IDEMPOTENCY_KEY_CHARACTERS_MAX or not text.isprintable():
            most = IDEMPOTENCY_KEY_CHARACTERS_MAX
            raise InvalidParameter("q", f"must have 1 to {most} printable characters")
        jobs, principal = self._jobs, request.principal
        console = jobs.repository
        found: dict[UUID, OrgJob] = {}
        try:
            job = await jobs.find_id(principal, text)
            found[job.uuid] = job
        except JobNotFound:
            keys = {
                jobs.retry_key(principal, text),
                *(
                    key
                    for adapter in jobs.adapters.all.values()
                    for key in adapter.stored_keys(principal, text)
                ),
            }
            for job in await console.find(principal.org, sorted(keys)):
                if principal.may_see(job.view.owner, admins_see_all=True):
                    found[job.uuid] = job
            of_request = OrgJobFilter(
                org=principal.org, reader=principal.lists_jobs_of, request_id=text
            )
            for job in (await console.page(of_request, FIRST_PAGE)).items:
                found[job.uuid] = job
        return list(found.values())


def routes(jobs: OrgJobs) -> list[Route]:
    listing = OrgJobListRoutes(jobs)
    route = partial(Route, access=Scope.READ, operable=True, tag=TAG)
    return [
        route(
            methods=("GET",),
            path=JOBS,
            name="org_jobs",
            summary="List an organisation's jobs of all products, newest first.",
            description="An admin sees all jobs; others see their own and those open to anyone. "
            "Tasks of batches are not listed. A page scans at most 10,000 jobs: with a narrow "
            "filter it may be short, or empty, and still have a `next`.",
            handler=listing.page,
            parameters=(
                *filter_parameters(jobs.adapters),
                Parameter(
                    "q",
                    "query",
                    "Only the job with this id or this idempotency key, or jobs with this request "
                    "id among the newest 10,000. The other filters are ignored.",
                    {"type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_CHARACTERS_MAX},
                ),
                *JOB_PAGE_PARAMETERS,
            ),
            responses=(ResponseSpec(HTTPStatus.OK, "A page of jobs.", schemas.OrgJobPageBody),),
        ),
        route(
            methods=("GET",),
            path=f"{JOBS}/events",
            name="org_jobs_events",
            summary="Stream an organisation's jobs as they change.",
            description="An admin sees all jobs; others see their own and those open to anyone. "
            "Tasks of batches are left out. Begins with jobs that have not ended, unless it "
            "resumes after an event. Follows the newest 10,000 jobs.",
            handler=listing.events,
            parameters=CHANGES_PARAMETERS,
            responses=(changes_response("job", "a job"),),
        ),
    ]
