"""Routes that list an organisation's jobs: page by page, by id or key, or as they change."""

from __future__ import annotations

from http import HTTPStatus
from uuid import UUID

from coatcheck.domain.changes import ChangeCursor, Changes
from coatcheck.domain.errors import InvalidParameter, JobNotFound
from coatcheck.domain.ids import to_text
from coatcheck.domain.limits import IDEMPOTENCY_KEY_CHARACTERS_MAX
from coatcheck.domain.org_jobs import OrgJob, OrgJobFilter
from coatcheck.domain.tenants import Scope
from coatcheck.http.event_stream import CHANGES_PAGE, CHANGES_WALKED_MAX
from coatcheck.http.pages import PAGE_PARAMETERS, PAGE_ROWS, read_page
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse, json_response
from coatcheck.http.routing import Parameter, ResponseSpec, Route
from coatcheck.http.watching import CHANGES_PARAMETERS, changes_response
from coatcheck.products.console import schemas
from coatcheck.products.console.filters import filter_parameters, query_filter
from coatcheck.products.console.jobs import JOBS, TAG, OrgJobs


class OrgJobListRoutes:
    """The routes that list jobs."""

    def __init__(self, jobs: OrgJobs) -> None:
        self._jobs = jobs

    async def page(self, request: Request) -> Response:
        """Jobs, newest first: all for an admin; for others their own and those open to anyone."""
        jobs, query = self._jobs, request.query
        asked = read_page(request)
        job_filter = query_filter(request, jobs.adapters)
        text = query.get("q")
        if text is not None:
            found = await self._search(request, text)
            return json_response(
                schemas.OrgJobPageBody([await jobs.presenter.item(job) for job in found], None)
            )
        page = await jobs.repository.page(job_filter, after=asked.after, limit=asked.limit)
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
            for job in (await console.page(of_request, after=None, limit=PAGE_ROWS)).items:
                found[job.uuid] = job
        return list(found.values())


def routes(jobs: OrgJobs) -> list[Route]:
    listing = OrgJobListRoutes(jobs)
    return [
        Route(
            methods=("GET",),
            path=JOBS,
            name="org_jobs",
            summary="List an organisation's jobs of all products, newest first.",
            description="An admin sees all jobs; others see their own and those open to anyone. "
            "Tasks of batches are not listed. A page scans at most 10,000 jobs: with a narrow "
            "filter it may be short, or empty, and still have a `next`.",
            handler=listing.page,
            access=Scope.READ,
            operable=True,
            tag=TAG,
            parameters=(
                *filter_parameters(jobs.adapters),
                Parameter(
                    "q",
                    "query",
                    "Only the job with this id or this idempotency key, or jobs with this request "
                    "id among the newest 10,000. The other filters are ignored.",
                    {
                        "type": "string",
                        "minLength": 1,
                        "maxLength": IDEMPOTENCY_KEY_CHARACTERS_MAX,
                    },
                ),
                *PAGE_PARAMETERS,
            ),
            responses=(ResponseSpec(HTTPStatus.OK, "A page of jobs.", schemas.OrgJobPageBody),),
        ),
        Route(
            methods=("GET",),
            path=f"{JOBS}/events",
            name="org_jobs_events",
            summary="Stream an organisation's jobs as they change.",
            description="An admin sees all jobs; others see their own and those open to anyone. "
            "Tasks of batches are left out. Begins with jobs that have not ended, unless it "
            "resumes after an event. Follows the newest 10,000 jobs.",
            handler=listing.events,
            access=Scope.READ,
            operable=True,
            tag=TAG,
            parameters=CHANGES_PARAMETERS,
            responses=(changes_response("job", "a job"),),
        ),
    ]
