"""Creates jobs: one by one through group commit, or many at once. Answers after the commit."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from uuid import UUID

from coatcheck.core.queries import inputs as input_store
from coatcheck.core.queries import jobs as job_store
from coatcheck.core.ready_notification import listing, naming
from coatcheck.core.submission import NewTickets, Ticket
from coatcheck.crash import crash_point
from coatcheck.db.batcher import Batcher
from coatcheck.db.connection import Connection
from coatcheck.db.notifications import READY, Notifier
from coatcheck.domain.errors import DatabaseUnavailable
from coatcheck.domain.inputs import StoredInput
from coatcheck.domain.job import Existing, JobKind, NewJob, PlainJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import SUBMIT_ROWS_MAX
from coatcheck.domain.states import State
from coatcheck.telemetry import metrics
from coatcheck.telemetry.job_stats import job_stats_of

_ROUNDS_MAX = 3
_FEW_JOBS = 8
_QUIET_SECONDS = 0.02


class Submitter:
    """Creates jobs: one by one, many at once, by COPY, or by a statement of the caller's."""

    def __init__(
        self, connections: Sequence[Connection], bulk_db: Connection, notifier: Notifier
    ) -> None:
        self._idle_connections = list(connections)
        self._bulk_db = bulk_db
        self._notifier = notifier
        self._job_stats = job_stats_of(bulk_db.database_url)
        self._notified_at = 0.0
        self._batcher: Batcher[NewJob, Ticket] = Batcher(
            self._flush, rows_max=SUBMIT_ROWS_MAX, flights=len(connections)
        )

    async def submit(self, job: NewJob) -> Ticket:
        """Create one job, or find the job that holds its key. It is durable when this returns."""
        return await self._batcher.ask(job)

    async def submit_many(self, jobs: Sequence[NewJob]) -> list[Ticket]:
        """Create all of these jobs in one transaction, or find the jobs that hold their keys."""
        created = await job_store.submit_atomically(self._bulk_db, jobs, SUBMIT_ROWS_MAX)
        self._count(Counter((job.org, job.lane) for job in jobs if job.uuid in created))
        self._notifier.notify(READY, {job.endpoint for job in jobs})
        return await self._tickets(self._bulk_db, jobs, created)

    async def submit_with_input(
        self, db: Connection, job: NewJob, stored: StoredInput, life_seconds: float
    ) -> Ticket:
        """Create one job and the record of its input, or find the job that holds its key."""

        async def insert(jobs: Sequence[NewJob]) -> dict[UUID, State]:
            (one,) = jobs
            return await input_store.submit(db, one, stored, life_seconds)

        return await self.submit_apart(db, job, insert)

    async def submit_apart(
        self,
        db: Connection,
        job: NewJob,
        insert: Callable[[Sequence[NewJob]], Awaitable[Mapping[UUID, State]]],
    ) -> Ticket:
        """Create one job by a statement of the caller's, which may write more than the job, or find
        the job that holds its key."""
        created = await insert([job])
        crash_point("submit.committed_not_answered")
        if created:
            self._count({(job.org, job.lane): 1})
            self._notifier.notify(READY, [job.endpoint])
        (ticket,) = await self._tickets(db, [job], created, insert)
        return ticket

    async def copy(
        self, jobs: Callable[[], Iterable[PlainJob]], ids: Sequence[bytes]
    ) -> Sequence[Ticket]:
        """Create plain jobs, all or none. ``jobs`` returns the same jobs at every call."""
        created: Counter[JobKind] = Counter()
        await job_store.copy(self._bulk_db, jobs, ids, created)
        kinds: Counter[tuple[str, str]] = Counter()
        for kind, rows in created.items():
            kinds[kind.org, kind.lane] += rows
        self._count(kinds)
        self._notifier.notify(READY, {kind.endpoint for kind in created})
        return NewTickets(ids)

    async def drain(self) -> None:
        await self._batcher.drain()

    async def _flush(self, jobs: list[NewJob]) -> Sequence[Ticket | Exception]:
        db = self._idle_connections.pop()  # there is one for each flight
        try:
            crash_point("submit.before_insert")
            notification = self._notification(jobs)
            created = await job_store.submit(db, jobs, notification)
            crash_point("submit.committed_not_answered")
            self._count(Counter((job.org, job.lane) for job in jobs if job.uuid in created))
            if notification is None:
                self._notifier.notify(READY, {job.endpoint for job in jobs})
            return await self._tickets(db, jobs, created)
        finally:
            self._idle_connections.append(db)

    def _notification(self, jobs: Sequence[NewJob]) -> tuple[str, str] | None:
        """The notification to send within the transaction, if these are few jobs at a quiet time.

        NOTIFY holds a cluster-wide lock until its commit is on disk, so a busy engine keeps it out
        of its transactions. An idle one saves a round trip (docs/adr/0011).
        """
        now = time.monotonic()
        if len(jobs) > _FEW_JOBS or now - self._notified_at < _QUIET_SECONDS:
            return None
        if any(job.has_webhooks for job in jobs):
            return None
        self._notified_at = now
        # One job alone is named, so that an idle worker need not look for it (docs/adr/0062).
        if len(jobs) == 1:
            return READY, naming(jobs[0])
        return READY, listing(job.endpoint for job in jobs)

    def _count(self, created: Mapping[tuple[str, str], int]) -> None:
        """Count the jobs that one statement created, by organisation and lane."""
        self._job_stats.submitted(created)
        lanes: Counter[Lane] = Counter()
        for (_, lane), rows in created.items():
            lanes[Lane(lane)] += rows
        metrics.record_submit_flush(lanes)

    async def _tickets(
        self,
        db: Connection,
        jobs: Sequence[NewJob],
        created: Mapping[UUID, State],
        insert: Callable[[Sequence[NewJob]], Awaitable[Mapping[UUID, State]]] | None = None,
    ) -> list[Ticket]:
        insert = insert or partial(job_store.submit, db)
        tickets = [
            Ticket(job.uuid, created[job.uuid], created=True) if job.uuid in created else None
            for job in jobs
        ]
        for _ in range(_ROUNDS_MAX):
            open_positions = [at for at, ticket in enumerate(tickets) if ticket is None]
            if not open_positions:
                break
            taken = [jobs[at] for at in open_positions]
            existing = await job_store.find_existing(db, taken)
            for at, position in enumerate(open_positions):
                if at in existing:
                    tickets[position] = _known(jobs[position], existing[at])
            # The job that held the key was pruned meanwhile: the key is free again.
            gone = [jobs[position] for position in open_positions if tickets[position] is None]
            if gone:
                again = await insert(gone)
                for position in open_positions:
                    state = again.get(jobs[position].uuid)
                    if state is not None:
                        tickets[position] = Ticket(jobs[position].uuid, state, created=True)
        settled = [ticket for ticket in tickets if ticket is not None]
        if len(settled) < len(tickets):
            raise DatabaseUnavailable("an idempotency key kept changing hands; try again")
        return settled


def _known(job: NewJob, existing: Existing) -> Ticket:
    if existing.uuid == job.uuid:
        # Our own statement, sent again because its answer was lost.
        return Ticket(job.uuid, existing.state, created=True)
    mismatch = existing.fingerprint != job.fingerprint
    return Ticket(existing.uuid, existing.state, created=False, mismatch=mismatch)
