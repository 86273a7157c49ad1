"""The jobs of batches: how one is found, read and shown, and its tasks among all jobs.

A batch is not a job of the engine, but can be watched like one (``http/watching.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final
from uuid import UUID

from coatcheck.core.explain import clock, plural, summary_of
from coatcheck.core.upstream_calls import shown_result
from coatcheck.domain import explanation as estimates
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.domain.errors import InputNotKept, InvalidParameter, JobNotFound
from coatcheck.domain.explanation import Blocker, BlockerKind, Eta, Explanation
from coatcheck.domain.ids import InvalidId, from_text, to_text
from coatcheck.domain.org_jobs import OrgJob
from coatcheck.domain.tenants import Principal, Scope
from coatcheck.http import parameters
from coatcheck.http.context import ServerContext
from coatcheck.http.job_adapters import JobAdapter, JobLabel, JobPaths
from coatcheck.http.job_resource import TICKET_HEADERS
from coatcheck.http.pages import (
    JOB_PAGE_PARAMETERS,
    LIMIT,
    cursor_parameter,
    read_job_page,
    read_limit,
)
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routing import (
    ULID,
    Handler,
    Method,
    Parameter,
    RequestBody,
    ResponseSpec,
    Route,
)
from coatcheck.http.watching import WatchedResource
from coatcheck.products.batches import presenter, schemas
from coatcheck.products.batches.model import (
    BATCHES_SERVICE,
    EXPORT_ENDPOINT,
    INGEST_ENDPOINT,
    BatchState,
    BatchView,
    RunView,
)
from coatcheck.products.batches.presenter import JOBS, poll_url
from coatcheck.products.batches.repository import BatchRepository
from coatcheck.products.batches.task_lists import TaskListReader

_SLOW = 1.5
"""The slow estimate (``end_p90``) is this many times the average one."""
_STALLED: Final = (BlockerKind.PAUSED, BlockerKind.NO_WORKER, BlockerKind.TARGET_UNREACHABLE)


def explain_run(
    view: BatchView, run: RunView, task: Explanation | None, now: datetime
) -> Explanation:
    """The explanation of a run. ``task`` explains one of its tasks that have not ended, if any."""
    if run.status.terminal:
        return Explanation(view.id, run.status.value, True, _ended(run, now))
    blockers = [*_ingest_blockers(view, run), *(() if task is None else task.blockers)]
    waiting = [each for each in blockers if each.kind is not BlockerKind.RUNNING]
    eta = _eta(run, task, now)
    reason = summary_of(waiting, eta, otherwise="").strip()
    return Explanation(
        job_id=view.id,
        state=run.status.value,
        terminal=False,
        summary=f"{_progress(run)} {reason}".rstrip(),
        blockers=waiting or blockers,
        position=None if task is None else task.position,
        eta=eta,
        retry_after=0 if eta is None else estimates.retry_after(eta.end_p50),
    )


def _ingest_blockers(view: BatchView, run: RunView) -> list[Blocker]:
    if run.cancel_requested_at is not None:
        return []
    if run.status is BatchState.INGESTING:
        lines = plural(run.lines, "line", "lines")
        reason, since = f"Its list is being ingested; {lines} so far.", run.created_at
    elif run.status is BatchState.OPEN:
        reason = "It is open: it accepts more tasks, and ends after it is closed."
        since = view.created_at
    else:
        return []
    return [Blocker(BlockerKind.WAITING_FOR_INPUT, reason, since=since)]


def _progress(run: RunView) -> str:
    tasks = run.counts
    total = plural(tasks.total, "task", "tasks")
    return f"{tasks.ended:,} of {total} ended; {tasks.running:,} running."


def _seconds_left(run: RunView, now: datetime) -> float | None:
    """The time until the run ends if it continues at its average speed; None if no task ended."""
    tasks = run.counts
    age = (now - run.created_at).total_seconds()
    return (tasks.total - tasks.ended) * age / tasks.ended if tasks.ended and age > 0 else None


def _eta(run: RunView, task: Explanation | None, now: datetime) -> Eta | None:
    left = _seconds_left(run, now)
    if run.status is not BatchState.RUNNING or left is None:
        return None
    if task is not None and any(each.kind in _STALLED for each in task.blockers):
        return None
    return Eta(0.0, 0.0, left, _SLOW * left)


def _ended(run: RunView, now: datetime) -> str:
    at = clock(run.completed_at or run.created_at, now)
    match run.status:
        case BatchState.COMPLETED:
            return f"{_progress(run)} It completed at {at}."
        case BatchState.CANCELLED:
            return f"{_progress(run)} It was cancelled."
        case _:
            text = (run.error_message or run.error_code or "no error was recorded").rstrip(".")
            return f"The ingest of its list failed: {text}. Redrive it, rerun it or delete it."


JOB: Final = JOBS + "/{id}"
ALL_RUNS: Final = "all"
"""The value of ``run`` that stands for the job as a whole."""
JOB_ID: Final = Parameter("id", "path", "The job's id.", ULID)
RUN: Final = Parameter("run", "query", "The run; by default the current one.", ULID)
RUN_OR_ALL: Final = Parameter(
    "run",
    "query",
    "The run, or `all` for the job as a whole, each task with its latest result. By default the "
    "current run.",
    {"anyOf": [ULID, {"type": "string", "enum": [ALL_RUNS]}]},
)
ANY_CURSOR: Final = {"type": "string"}
"""The cursors of lists that are not sorted by id."""
SUBMIT_HEADERS: Final = TICKET_HEADERS | {"ETag": "Changes with every state and count."}


def refusal(status: HTTPStatus, description: str) -> ResponseSpec:
    return ResponseSpec.problem(status, description)


INVALID_FIELD: Final = refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "A field is invalid.")


def batch_route(
    method: Method,
    path: str,
    name: str,
    summary: str,
    handler: Handler,
    *responses: ResponseSpec,
    parameters: Sequence[Parameter] = (JOB_ID,),
    description: str = "",
    body: RequestBody | None = None,
) -> Route:
    """A route of this product. GET needs the scope ``read``, every other method ``submit``."""
    return Route(
        methods=(method,),
        path=path,
        name=name,
        summary=summary,
        handler=handler,
        responses=responses,
        tag=BATCHES_SERVICE,
        access=Scope.READ if method == "GET" else Scope.SUBMIT,
        description=description,
        parameters=parameters,
        body=body,
    )


_UNKNOWN_SECONDS: Final = 2


class BatchJobs(WatchedResource[BatchView]):
    """Jobs of many tasks. An admin may see those of all owners."""

    product = BATCHES_SERVICE
    name = "batch"
    path = JOB
    body = schemas.BatchJob
    stores_events = False
    has_artifacts = False
    events_description = (
        "Events are not stored: a new connection starts with the job's state at that time."
    )
    cancel_description = "Cancels the job's run: no more of its tasks start."

    def __init__(self, server: ServerContext) -> None:
        super().__init__(server)
        self.settings = server.settings
        self.lists = TaskListReader(server)

    @property
    def batches(self) -> BatchRepository:
        return self.engine.extension(BatchRepository)

    async def find(self, request: Request, _: Scope) -> BatchView:
        principal = request.principal
        view = await self.batches.get(request.params["id"], org=principal.org)
        if not principal.may_see(view.owner, admins_see_all=True):
            raise JobNotFound("there is no such job")
        return view

    async def read(self, one: str, org: str) -> BatchView:
        return await self.batches.get(one, org=org)

    def etag(self, view: BatchView) -> bytes:
        return presenter.etag(view)

    async def show(self, view: BatchView) -> schemas.BatchJob:
        return presenter.job(view)

    def phase(self, view: BatchView) -> object:
        return view.current.id, view.status

    def progress(self, view: BatchView) -> schemas.BatchProgress:
        return presenter.job_progress(view)

    async def retry_after(self, view: BatchView) -> int:
        return retry_after(view, datetime.now(UTC))

    async def cancel(self, view: BatchView) -> BatchView:
        return await self.batches.cancel(view.id, org=view.org)

    async def explanation(self, view: BatchView) -> tuple[Explanation, int]:
        """Of the current run: what blocks the next of its tasks."""
        run, explainer = view.current, self.engine.explainer
        job = None if run.status.terminal else await explainer.next_of_run(view.org, run.uuid)
        task = None if job is None else await explainer.explain(job)
        now = datetime.now(UTC) if job is None else job.read_at
        return explain_run(view, run, task, now), retry_after(view, now)

    def stored_key(self, principal: Principal, kind: str, key: str | None) -> str | None:
        """The stored form of an idempotency key: separate for each caller and each operation."""
        if key is None:
            return None
        return parameters.stored_key(self.product, principal, key, kind=kind)

    # Lists

    async def listed(self, request: Request) -> Response:
        """List jobs: all of the organisation's for an admin, the caller's own for others."""
        principal, asked = request.principal, read_job_page(request)
        found = await self.batches.list(principal.org, asked, owner=principal.lists_jobs_of)
        items = [presenter.job(view) for view in found]
        following = asked.following(items, lambda item: item.id)
        return json_response(schemas.BatchPage(items, following))

    async def bad_lines(self, request: Request) -> Response:
        view = await self.found(request)
        run = run_of(view, request.query.get("run"))
        found, following = await self.batches.dead_letters.bad_lines(
            view, run, after=request.query.get("cursor"), limit=read_limit(request.query)
        )
        items = [schemas.BadLineItem(each.line, each.code, each.message) for each in found]
        return json_response(schemas.BadLinePage(items, following))

    def routes(self) -> list[Route]:
        return [
            batch_route(
                "GET",
                JOBS,
                "batches",
                "List jobs, newest first.",
                self.listed,
                ResponseSpec(HTTPStatus.OK, "A page of jobs.", schemas.BatchPage),
                description="An admin sees all jobs of the organisation; others see their own.",
                parameters=JOB_PAGE_PARAMETERS,
            ),
            *super().routes(),
            batch_route(
                "GET",
                f"{JOB}/bad-lines",
                "batch_bad_lines",
                "The invalid lines of a run's lists, each with its error.",
                self.bad_lines,
                ResponseSpec(HTTPStatus.OK, "A page of lines.", schemas.BadLinePage),
                parameters=(JOB_ID, RUN, cursor_parameter(ANY_CURSOR), LIMIT),
            ),
        ]


def retry_after(view: BatchView, now: datetime) -> int:
    """The seconds of ``Retry-After``."""
    left = _seconds_left(view.current, now)
    return _UNKNOWN_SECONDS if left is None else estimates.retry_after(left)


def run_of(view: BatchView, requested: str | None, place: str = "query") -> RunView:
    """The run with the requested id, or the current run. Raises InvalidParameter."""
    if requested is None:
        return view.current
    try:
        run_id = from_text(requested)
    except InvalidId:
        run_id = None
    for run in view.runs:
        if run.uuid == run_id:
            return run
    raise InvalidParameter("run", "must be the id of a run of this job", place)


def chosen_run(view: BatchView, requested: str | None, place: str = "query") -> RunView | None:
    """The requested run, or the current one; None for ``all``, the job as a whole."""
    return None if requested == ALL_RUNS else run_of(view, requested, place)


_INTERNAL_JOBS: Final = {INGEST_ENDPOINT: "ingest a list", EXPORT_ENDPOINT: "write an export"}


class BatchesJobAdapter(JobAdapter):
    """Reads and cancels a task like any job. To retry a task, rerun its batch."""

    product = "batches"

    async def label(self, job: OrgJob, /) -> JobLabel:
        task = job.task
        if task is None:
            endpoint = job.view.endpoint
            return JobLabel(BATCHES_SERVICE, _INTERNAL_JOBS.get(endpoint, endpoint))
        return JobLabel(task.service or job.service, task.endpoint or job.view.endpoint)

    async def other_path(self, principal: Principal, uuid: UUID, /) -> str | None:
        try:
            view = await self.engine.extension(BatchRepository).get(
                to_text(uuid), org=principal.org
            )
        except JobNotFound:
            return None
        seen = principal.may_see(view.owner, admins_see_all=True)
        return poll_url(view.id) if seen else None

    def paths(self, job: OrgJob) -> JobPaths:
        task = job.task
        if task is None or task.group is None:
            return JobPaths(None)
        batch = poll_url(to_text(task.group))
        return JobPaths(f"{batch}/tasks/{job.uuid.hex}", batch=batch)

    def result(self, job: OrgJob) -> bytes | None:
        result = job.view.result
        if result is None or job.view.endpoint != UPSTREAM_ENDPOINT:
            return result
        return shown_result(result)

    async def input(self, job: OrgJob) -> bytes:
        payload = await super().input(job)
        if job.task is None:
            return payload
        if job.task.group is None:
            raise InputNotKept("The task's batch and its input are being deleted.")
        batch = await self.engine.extension(BatchRepository).get_of_run(
            job.task.run, org=job.view.org
        )
        return payload.removeprefix(batch.payload_prefix).removesuffix(batch.payload_suffix)

    def refusal(self, job: OrgJob, /) -> str | None:
        if job.task is None:
            return (
                "This is an internal job of a batch. Retry a failed ingest with "
                "POST /v1/dlq/{id}/redrive; instead of a failed export, create another one."
            )
        batch = "{id}" if job.task.group is None else to_text(job.task.group)
        return f"To retry a task, rerun its batch: POST /v1/jobs/{batch}/rerun"
