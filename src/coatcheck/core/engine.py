"""The engine: the Python API to submit jobs and to collect their results."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, TypeVar
from uuid import UUID

from coatcheck.blobs import BlobContainer, SignedUrl, UrlSigner
from coatcheck.blobs.disposition import with_extension
from coatcheck.blobs.keys import input_key
from coatcheck.blobs.signing import Grants
from coatcheck.core.artifacts import ArtifactRepository
from coatcheck.core.catalogue import Declarations
from coatcheck.core.explain import Explainer, Stalls, product_explainers
from coatcheck.core.extension import EngineContext, EngineExtension
from coatcheck.core.overview import Overviews
from coatcheck.core.process_metrics import JobStatsRecorder
from coatcheck.core.queries import inputs as input_store
from coatcheck.core.queries import jobs as job_store
from coatcheck.core.queries import limits as limit_store
from coatcheck.core.queries import reports as report_store
from coatcheck.core.queries import usage as usage_report_store
from coatcheck.core.queries import usage as usage_store
from coatcheck.core.submission import Preparer, Submission, Ticket
from coatcheck.core.submitter import Submitter
from coatcheck.core.watcher import OutputReader, Watch, Watcher
from coatcheck.core.webhooks import Webhooks
from coatcheck.crash import crash_point
from coatcheck.db.batcher import Batcher
from coatcheck.db.connection import PINNED_PLANS
from coatcheck.db.database import Database
from coatcheck.db.diagnosis import require_sessions
from coatcheck.db.migrate import check_schema
from coatcheck.db.notifications import CANCEL, CHANGED, READY, SERVICES
from coatcheck.domain.errors import (
    InvalidSubmission,
    JobAlreadyEnded,
    JobNotFound,
)
from coatcheck.domain.ids import InvalidId, from_text, new_ids
from coatcheck.domain.inputs import InputRecord, StoredInput
from coatcheck.domain.job import (
    Artifact,
    ConcurrencyLimit,
    JobEvent,
    JobPage,
    JobView,
    stored_scope,
)
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import (
    USAGE_DAYS_MAX,
    USAGE_HOURLY_DAYS_MAX,
    page_result_bytes_max,
)
from coatcheck.domain.listing import PAGE_ROWS, PAGE_ROWS_MAX, JobFilter, PageQuery
from coatcheck.domain.states import State
from coatcheck.domain.usage import Granularity, UsageReport, UsageRow
from coatcheck.service import Endpoint, Service
from coatcheck.settings import Settings
from coatcheck.telemetry import metrics, tracing
from coatcheck.telemetry.event_log import EVENTS
from coatcheck.telemetry.job_stats import job_stats_of

_BULK_SECONDS_MAX = 600.0
_READ_ROWS_MAX = 500
_OFFSET_MAX = 10_000
_LONG_QUEUE = 20_000
_MANY_OWNERS = 200
_TOTAL_MAX = 10_000
"""Lists count their jobs no further than this."""


Extension = TypeVar("Extension", bound=EngineExtension)


@dataclass(frozen=True, slots=True)
class Health:
    """The newest schema step, and how many live jobs there are by lane and state."""

    schema: str
    depth: dict[tuple[Lane, State], int]


class Engine:
    """Submits jobs and collects them. One per process; safe to use from many tasks at once.

    ``database`` has the connections of the process, if other parts of it share them; whoever made
    it closes it.

    >>> async with Engine(settings) as engine:
    ...     ticket = await engine.submit("docs.post__analyze", {"content": "..."})
    ...     job = await engine.wait(ticket.id)
    """

    def __init__(
        self,
        settings: Settings | str,
        services: Iterable[Service] = (),
        *,
        database: Database | None = None,
    ) -> None:
        if isinstance(settings, str):
            settings = Settings(database_url=settings)
        self.settings = settings
        endpoints: dict[str, Endpoint] = {
            endpoint.name: endpoint
            for service in services
            for endpoint in service.endpoints.values()
        }
        self._preparer = Preparer(endpoints, settings.lanes)
        self._owns_database = database is None
        self.database = database = database or Database.of_engine(settings.database_url)
        self._read_db = database.read
        self._page_db = database.pooled("events and cancel")
        self._list_db = database.pooled("list", server_settings=job_store.LISTING, is_long=True)
        self._count_db = database.pooled("count", server_settings=PINNED_PLANS)
        self._input_db = database.pooled("inputs", server_settings=PINNED_PLANS)
        self._background_db = database.pooled(
            "background", server_settings=PINNED_PLANS, is_long=True
        )
        bulk_db = database.pooled(
            "submit many", statement_seconds_max=_BULK_SECONDS_MAX, is_long=True
        )
        self._notifier = database.notifier
        self._job_stats = job_stats_of(database.url)
        self._stats_recorder = JobStatsRecorder(self._background_db)
        self.artifact_repository = ArtifactRepository(self._page_db, lambda: self.blobs)
        self.webhooks = Webhooks(settings, self._page_db, self._list_db)
        self._submitter = Submitter(database.submit, bulk_db, self._notifier)
        self._reader: Batcher[tuple[str, UUID], JobView | None] = Batcher(
            self._read, rows_max=_READ_ROWS_MAX
        )
        self._watcher = Watcher()
        self._declarations = Declarations(self._page_db, self._preparer.learn)
        self._stalls = Stalls(settings, database)
        self.output = OutputReader(database)
        self.overviews = Overviews(database)
        self._context = EngineContext(
            settings,
            database,
            self._read_db,
            self._page_db,
            self._background_db,
            self._preparer,
            self._submitter,
            self._notifier,
            self.deployment,
            lambda: self.signer,
            lambda: self.blobs,
        )
        self._extensions: dict[type[EngineExtension], EngineExtension] = {}
        self.explainer = Explainer(database, lambda: product_explainers(self))
        self._subscription = database.listener.subscribe(
            {CHANGED: self._watcher.on_notification, SERVICES: self._declarations.on_notification},
            on_gap=self._look_for_changes,
        )
        self._blobs: BlobContainer | None = None
        self._signer: UrlSigner | None = None
        self._deployment: UUID | None = None
        self._started = False

    @classmethod
    async def connect(
        cls,
        settings: Settings | str,
        services: Iterable[Service] = (),
        *,
        database: Database | None = None,
    ) -> Engine:
        """An engine on the database of ``settings`` (or of a URL): checked and listening."""
        engine = cls(settings, services, database=database)
        await engine.start()
        return engine

    async def start(self) -> None:
        """Check that connections keep their sessions, check the schema, and begin to listen."""
        try:
            await require_sessions(self._page_db)
            await self._page_db.run(check_schema)
            await self._subscription.start()
            await self._declarations.start()
            self._stats_recorder.start()
            self._started = True
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Answer the calls that are pending, then close the engine's own connections."""
        await self._submitter.drain()
        await self._stats_recorder.stop()
        await self._reader.drain()
        for extension in self._extensions.values():
            await extension.drain()
        await self._notifier.drain()
        await self._subscription.stop()
        await self._declarations.close()
        await self._stalls.close()
        await self.output.close()
        if self._owns_database:
            await self.database.close()

    async def __aenter__(self) -> Engine:
        if not self._started:
            await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def extension(self, kind: type[Extension]) -> Extension:
        """This engine's instance of a product's extension: made on first use, closed with the
        engine. See ``core/extension.py``."""
        found = self._extensions.get(kind)
        if found is None:
            found = self._extensions[kind] = kind(self._context)
        assert isinstance(found, kind)
        return found

    # Submitting

    async def submit(self, endpoint: str, payload: Any = b"{}", **options: Any) -> Ticket:
        """Create one job. It is durable when this returns. ``options`` are fields of Submission."""
        return await self._submitter.submit(
            self._preparer.prepare(Submission(endpoint, payload, **options))
        )

    async def submit_many(self, submissions: Sequence[Submission]) -> Sequence[Ticket]:
        """Create many jobs in the order given, in one transaction.

        About ten thousand at a time is best. Jobs without a key or an option are the cheapest.
        """
        if not submissions:
            return []
        ids = new_ids(len(submissions))
        if tracing.current() is None and all(map(self._preparer.is_plain, submissions)):
            return await self._submitter.copy(lambda: self._preparer.plain(submissions), ids)
        uuids = [UUID(bytes=job_id) for job_id in ids]
        return await self._submitter.submit_many([*map(self._preparer.prepare, submissions, uuids)])

    async def new_input_key(self, job: UUID) -> str:
        """A new key in ``blobs`` under which to store a job's input, see ``blobs.pieces``.

        An input that is stored and never submitted is swept in time.
        """
        return input_key(await self.deployment(), job)

    async def deployment(self) -> UUID:
        """The id of this database. The keys of its blobs begin with it (``blobs.keys``)."""
        if self._deployment is None:
            self._deployment = await report_store.deployment(self._input_db)
        return self._deployment

    async def submit_with_input(
        self,
        endpoint: str,
        payload: Any,
        stored: StoredInput,
        *,
        job_id: UUID,
        **options: Any,
    ) -> Ticket:
        """Create the job ``job_id`` with an input that was stored for it. ``options`` are fields
        of Submission.

        The input is deleted when the job ends, or when its time to live ends, whatever the job is
        doing then; a job that has not started by that time fails. Unless the ticket says
        ``created``, no job has the input, and the caller deletes it. The input's hash tells one
        use of an idempotency key from another.
        """
        life = float(self.settings.archive_ttl_seconds)
        # The input is deleted at the job's end, so the payload that names it is no use to a retry.
        given = {"fingerprint_of": stored.sha256, **options, "keep_input": False}
        submission = Submission(endpoint, payload, **given)
        new = self._preparer.prepare_to_start_within(
            submission, job_id, max(0.0, life - stored.age_seconds)
        )
        return await self._submitter.submit_with_input(self._input_db, new, stored, life)

    async def knows_key(self, idempotency_key: str, *, org: str = "default") -> bool:
        """Whether a job holds the key, so that submitting it again creates no job."""
        return await job_store.knows_key(self._page_db, org, idempotency_key)

    # Reading

    async def get(self, job_id: str, *, org: str = "default") -> JobView:
        """A job as it is now. Raises JobNotFound, for another organisation's job as well."""
        return await self.with_result(await self.look(job_id, org=org))

    async def look(self, job_id: str, *, org: str = "default") -> JobView:
        """As ``get``, but without a long result: ``result_is_left_out`` says so.

        For callers that ask often or for many jobs: it stays cheap, however large results are.
        """
        view = await self._reader.ask((org, _uuid(job_id)))
        if view is None:
            raise JobNotFound("there is no such job")
        return view

    async def with_result(self, view: JobView) -> JobView:
        """The job with its result, if that was left out. Raises JobNotFound if it was deleted."""
        if not view.result_is_left_out:
            return view
        return replace(view, result=await self.result(view.uuid, org=view.org))

    async def result(self, job: UUID, *, org: str = "default") -> bytes:
        """The whole result of a job or a task. Raises JobNotFound if there is none."""
        result = await job_store.result(self._input_db, org, job)
        if result is None:
            raise JobNotFound("there is no such job")
        return result

    async def find(self, idempotency_key: str, *, org: str = "default") -> JobView | None:
        """The job that holds the key, as it is now; None if there is none."""
        return await job_store.find(self._input_db, org, idempotency_key)

    async def get_many(
        self, job_ids: Sequence[str], *, org: str = "default"
    ) -> builtins.list[JobView | None]:
        """Jobs as they are now, in the order of ``job_ids``. None for an id that is malformed, does
        not exist or belongs to another organisation.

        Long results are left out, as in a page: the more jobs, the shorter the limit.
        """
        uuids = [_uuid_or_none(job_id) for job_id in job_ids]
        keys = {(org, uuid) for uuid in uuids if uuid is not None}
        bytes_max = page_result_bytes_max(len(job_ids))
        found = await job_store.get(self._read_db, [*keys], bytes_max)
        return [None if uuid is None else found.get((org, uuid)) for uuid in uuids]

    def watch(self, job_id: str) -> Watch:
        """A context manager. Inside it, ``await watch.changed(seconds)`` returns when the job, its
        events or its progress may have changed, and from time to time without a reason.

        Read the job after you begin to watch it: no change after that read is missed.
        """
        return self._watcher.watch(_uuid(job_id))

    def watch_all(self) -> Watch:
        """As ``watch``, for any job."""
        return self._watcher.watch_all()

    @property
    def waits(self) -> int:
        """How many callers wait for changes of jobs at this moment."""
        return self._watcher.waits

    async def flush_stats(self) -> None:
        """Write now what was counted for overviews; otherwise that happens every few seconds."""
        await self._stats_recorder.flush()

    async def wait(
        self,
        job_id: str,
        *,
        org: str = "default",
        timeout: float = 60.0,
        since: JobView | None = None,
    ) -> JobView:
        """The job once it has ended, or as it is after ``timeout`` seconds: see its ``terminal``.

        With ``since``, return as soon as the job has changed since that view.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        with self._watcher.watch(_uuid(job_id)) as watch:
            while True:
                view = await self.get(job_id, org=org)
                remaining = deadline - loop.time()
                moved = since is not None and view.updated_at != since.updated_at
                if view.terminal or moved or remaining <= 0:
                    return view
                await watch.changed(remaining)

    async def list(
        self,
        *,
        org: str = "default",
        after: str | None = None,
        states: Sequence[State] | None = None,
        endpoint: str | None = None,
        lane: Lane | None = None,
        limit: int = PAGE_ROWS,
    ) -> Sequence[JobView]:
        """Jobs, newest first, without results. ``after`` is the last id of the previous page."""
        if not 1 <= limit <= PAGE_ROWS_MAX:
            raise InvalidSubmission(f"limit: must be 1 to {PAGE_ROWS_MAX}")
        endpoints = None if endpoint is None else [endpoint]
        wanted = JobFilter(org=org, endpoints=endpoints, states=states, lane=lane)
        asked = PageQuery(limit=limit, after=None if after is None else _uuid(after))
        return await job_store.page(self._list_db, wanted, asked, offset=0, sparse=False)

    async def page(
        self,
        *,
        org: str = "default",
        endpoints: Sequence[str] | None = None,
        queue_key_prefix: str | None = None,
        states: Sequence[State] | None = None,
        lane: Lane | None = None,
        owner: str | None = None,
        after: str | None = None,
        offset: int = 0,
        limit: int = PAGE_ROWS,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        flow_prefix: str | None = None,
    ) -> JobPage:
        """A page of jobs, newest first, without results, and the total.

        ``endpoints``, ``queue_key_prefix``, ``states``, ``lane``, ``owner`` and the times narrow
        the list. ``flow_prefix`` is the old name of ``queue_key_prefix``, and is removed with
        0.1.0. An owner sees their own jobs and those that anyone may read. The page begins after
        the id ``after`` and skips ``offset`` more. The total is that of the whole list; it stops at
        10,000.
        """
        if queue_key_prefix is None:
            queue_key_prefix = flow_prefix
        elif flow_prefix not in (None, queue_key_prefix):
            raise InvalidSubmission(
                "queue_key_prefix: differs from flow_prefix, which is its old name; "
                "give queue_key_prefix alone"
            )
        wanted = JobFilter(
            org=org,
            endpoints=endpoints,
            queue_key_prefix=queue_key_prefix,
            states=states,
            lane=lane,
            owner=owner,
        )
        asked = PageQuery(
            limit=limit,
            after=None if after is None else _uuid(after),
            created_after=created_after,
            created_before=created_before,
        )
        return await self.listed(wanted, asked, offset=offset)

    async def listed(self, wanted: JobFilter, asked: PageQuery, *, offset: int = 0) -> JobPage:
        """As ``page``, for a caller that has both of its parts."""
        if not 1 <= asked.limit <= PAGE_ROWS_MAX:
            raise InvalidSubmission(f"limit: must be 1 to {PAGE_ROWS_MAX}")
        if not 0 <= offset <= _OFFSET_MAX:
            raise InvalidSubmission(f"offset: must be 0 to {_OFFSET_MAX}; go on with `after`")
        sparse = await self._is_sparse(wanted)
        items = await job_store.page(self._list_db, wanted, asked, offset=offset, sparse=sparse)
        if asked.after is None and len(items) < asked.limit and (items or offset == 0):
            return JobPage(items, offset + len(items), total_is_exact=True)  # the last page
        total = await job_store.page_total(
            self._list_db, wanted, asked, _TOTAL_MAX + 1, sparse=sparse
        )
        return JobPage(items, min(total, _TOTAL_MAX), total_is_exact=total <= _TOTAL_MAX)

    async def _is_sparse(self, job_filter: JobFilter) -> bool:
        """Whether to look for jobs by service and owner. Not if that would read a long queue whole,
        nor if owners are many: then some of their jobs are near the newest of all."""
        services = job_filter.services
        if services is None or job_filter.endpoints is None:
            return False
        states = job_filter.states
        reads_queue = (
            states is not None and State.QUEUED in states and State.COMPLETED not in states
        )
        if (
            reads_queue
            and await self.backlog(job_filter.org, job_filter.endpoints, _LONG_QUEUE) == _LONG_QUEUE
        ):
            return False
        if job_filter.owner is not None:
            return True
        owners = await job_store.owners(self._list_db, job_filter.org, services, _MANY_OWNERS)
        return owners < _MANY_OWNERS

    async def usage(
        self,
        org: str,
        first_day: date,
        last_day: date,
        endpoint: str | None = None,
        *,
        granularity: str = "day",
    ) -> Sequence[UsageRow]:
        """The usage of an organisation's jobs that ended from ``first_day`` to ``last_day`` (UTC).

        Exact as soon as a job has ended. One row for each day, endpoint and queue key with any
        usage; with ``granularity="hour"`` one for each hour, for at most 31 days.
        """
        if granularity not in [*Granularity]:
            raise InvalidSubmission(f"granularity: must be one of {', '.join(Granularity)}")
        step = Granularity(granularity)
        days_max = USAGE_DAYS_MAX if step is Granularity.DAY else USAGE_HOURLY_DAYS_MAX
        if not 0 <= (last_day - first_day).days < days_max:
            raise InvalidSubmission(
                f"last_day: must be the first day or one of the {days_max - 1} after it"
            )
        read = usage_store.read if step is Granularity.DAY else usage_store.read_hours
        return await read(self._list_db, org, first_day, last_day, endpoint)

    async def usage_reports(self, org: str) -> Sequence[UsageReport]:
        """An organisation's usage reports without their items, the newest period first."""
        return await usage_report_store.list_reports(self._list_db, org)

    async def usage_report(self, org: str, report: UUID) -> UsageReport | None:
        """One usage report with its items; None if the organisation has no such report."""
        return await usage_report_store.find_report(self._list_db, org, report)

    async def backlog(self, org: str, endpoints: Sequence[str] | None, most: int) -> int:
        """How many jobs of these endpoints, or of all (None), are queued, tasks of runs included.
        Stops counting at ``most``."""
        if endpoints is None:
            return await job_store.org_backlog(self._count_db, org, most)
        return await job_store.backlog(self._count_db, org, endpoints, most)

    async def events(
        self,
        job_id: str,
        *,
        org: str = "default",
        after: int = 0,
        limit: int = 200,
        bytes_max: int = 2**62,
    ) -> Sequence[JobEvent]:
        """Log lines, output chunks and alerts after the event numbered ``after``.

        At most ``limit`` events; the page ends with the event that reaches ``bytes_max`` bytes.
        """
        uuid = _uuid(job_id)
        return await report_store.read_events(self._page_db, org, uuid, after, limit, bytes_max)

    async def stall_reason(self, view: JobView) -> str | None:
        """Why a job waits or runs for longer than its lane allows, or None if it does not.

        ``no_worker``, ``threads_held``, ``concurrency_limit``, ``rate_limit``,
        ``target_unreachable`` or ``heartbeat_lost``. A job that only waits behind others is not
        stalled.
        """
        return await self._stalls.reason(view)

    async def artifacts(self, job_id: str, *, org: str = "default") -> Sequence[Artifact]:
        """The files that a job produced."""
        return await report_store.list_artifacts(self._page_db, org, _uuid(job_id))

    async def input_of(self, job_id: str, *, org: str = "default") -> InputRecord | None:
        """The record of a job's stored input: each copy, and what deleted it.

        Kept for 90 days, whether or not the job still exists; None if it had no such input.
        """
        uuid = _uuid(job_id)
        return await input_store.record(self._input_db, org, uuid)

    def read_artifact(self, artifact: Artifact) -> AsyncIterator[bytes]:
        """An artifact's bytes, piece by piece."""
        return self.blobs.stream(artifact.blob_key)

    async def sign_artifact(self, artifact: Artifact, seconds: int = 3600) -> SignedUrl:
        """A URL from which anybody can fetch the artifact for ``seconds`` seconds.

        It stops working earlier if the job, and its artifacts with it, is deleted.
        """
        return await self.signer.signed_get(
            artifact.blob_key,
            seconds,
            file_name=with_extension(artifact.name, artifact.media_type),
            media_type=artifact.media_type,
        )

    # Control

    async def cancel(self, job_id: str, *, org: str = "default") -> JobView:
        """Cancel a job: at once if it waits, else as soon as its handler stops.

        Raises JobAlreadyEnded if it has ended, JobNotFound if there is no such job.
        """
        uuid = _uuid(job_id)
        answer = await job_store.cancel(self._page_db, org, uuid, self.settings.keep_failed_seconds)
        if answer is None:
            raise JobNotFound("there is no such job")
        before, after, boot, repeated = answer
        # A repeat that finds the job cancelled finds the end that our first try made.
        if before.terminal and not (repeated and before is State.CANCELLED):
            raise JobAlreadyEnded(f"the job has already ended: {before}")
        crash_point("cancel.committed_not_notified")
        self._notifier.notify(CHANGED, [uuid.hex])
        if after is State.CANCEL_REQUESTED:
            self._notifier.notify(CANCEL, [f"{boot}:{uuid.hex}"])
        view = await self.get(job_id, org=org)
        if after is State.CANCELLED and not before.terminal:
            self._job_stats.moved(org, view.lane, after)
            EVENTS.job_ended(
                view.uuid,
                org,
                view.endpoint,
                after,
                request_id=view.request_id,
                attempt=view.attempts,
                error_code=view.error_code,
            )
        return view

    async def set_limit(self, limit: ConcurrencyLimit) -> None:
        """Limit how many jobs of an endpoint, an organisation or a queue key are held at once."""
        if limit.scope not in ("endpoint", "org", "flow"):
            raise InvalidSubmission("scope: must be endpoint, org or queue_key")
        if limit.held_max < 0:
            raise InvalidSubmission("held_max: must be at least 0")
        await limit_store.set_limit(self._page_db, limit)
        self._notifier.notify(READY, None)

    async def clear_limit(self, org: str, scope: str, name: str) -> bool:
        """Remove a limit. Returns whether there was one."""
        cleared = await limit_store.clear_limit(self._page_db, org, stored_scope(scope), name)
        self._notifier.notify(READY, None)
        return cleared

    async def limits(self, *, org: str = "default") -> Sequence[ConcurrencyLimit]:
        """An organisation's limits, and those on whole endpoints."""
        return await limit_store.list_limits(self._page_db, org)

    async def health(self) -> Health:
        """Check the database once. Raises DatabaseUnavailable or SchemaMismatch."""
        schema = await self._page_db.run(check_schema)
        # With pinned plans: unpinned, counting the few live jobs read the whole history.
        return Health(schema, await job_store.depth(self._read_db))

    @property
    def blobs(self) -> BlobContainer:
        """The blob container, opened on first use."""
        if self._blobs is None:
            self._blobs = BlobContainer.open(self.settings.blob_url)
        return self._blobs

    @property
    def signer(self) -> UrlSigner:
        """Signs URLs of blobs. Raises SettingsInvalid without COATCHECK_KEY_PEPPER."""
        if self._signer is None:
            self._signer = UrlSigner(self.blobs, Grants(self.settings.require("key_pepper")))
        return self._signer

    def _look_for_changes(self) -> None:
        """Check everything again: a notification may have been lost."""
        self._watcher.wake_all()
        self._declarations.read_soon()

    async def _read(self, keys: Sequence[tuple[str, UUID]]) -> Sequence[JobView | None]:
        metrics.record_read_flush(len(keys))
        found = await job_store.get(self._read_db, [*set(keys)])
        return [found.get(key) for key in keys]


def _uuid_or_none(job_id: str) -> UUID | None:
    try:
        return from_text(job_id)
    except InvalidId:
        return None


def _uuid(job_id: str) -> UUID:
    try:
        return from_text(job_id)
    except InvalidId as error:
        # A malformed id is answered like an unknown one, and its error is not shown.
        raise JobNotFound("there is no such job") from error
