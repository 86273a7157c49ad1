"""Looking after an organisation's jobs: all of them, whichever surface they came by."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final
from uuid import UUID

from coatcheck.core.extension import EngineContext, EngineExtension
from coatcheck.core.queries import org_jobs as console_store
from coatcheck.core.queries.jobs import LISTING, TookTooLong
from coatcheck.core.submission import Ticket
from coatcheck.db.connection import PINNED_PLANS
from coatcheck.db.errors import retried
from coatcheck.domain.changes import ChangeCursor, Changes
from coatcheck.domain.errors import (
    DatabaseUnavailable,
    InputNotKept,
    JobNotEnded,
    JobNotFound,
    NotFound,
)
from coatcheck.domain.ids import at_moment, new_id, newest_possible
from coatcheck.domain.job import NewJob
from coatcheck.domain.org_jobs import (
    LIVE,
    UNSUCCESSFUL,
    Attempt,
    LogEntry,
    OrgJob,
    OrgJobFilter,
    OrgJobPage,
)
from coatcheck.domain.states import State
from coatcheck.encoding import encode
from coatcheck.telemetry import tracing

WALKED_ROWS_MAX: Final = 10_000
"""How many jobs one page looks at, to find those that were asked for."""
_FIRST_STEP_ROWS: Final = 500
"""How many it looks at first: most pages are full after these."""
_LIVE_ROWS_MAX: Final = 5_000
_LOG_WALKED_MAX: Final = 5_000
_OLDEST: Final = UUID(int=1 << 120)
"""Before the id of any job; those of tasks begin anywhere (``sql/jobs/page_filter.sql``)."""
_CLOCKS_DIFFER_BY: Final = timedelta(hours=1)
"""An id begins with the time at which it was made up, by the clock of who did so."""


SendRetry = Callable[[NewJob], Awaitable[console_store.Retried | None]]
"""Creates the new job of a retry: a statement that is sent again if its answer was lost."""


class OrgJobRepository(EngineExtension):
    """What is asked of jobs by those who look after them. Who may ask is the caller's to know."""

    def __init__(self, context: EngineContext) -> None:
        self._line = context.db("console", server_settings=PINNED_PLANS)
        self._list_db = context.db("console lists", server_settings=LISTING)
        self._changes_line = context.db("console changes", server_settings=LISTING)
        self._submitter = context.submitter

    async def get(self, org: str, job_id: UUID) -> OrgJob:
        """A job as it is now, with its result if that is short. Raises JobNotFound."""
        found = await retried(lambda: console_store.get(self._line, org, job_id))
        if found is None:
            raise JobNotFound("there is no such job")
        return found

    async def find(self, org: str, keys: Sequence[str]) -> Sequence[OrgJob]:
        """The jobs that hold any of these idempotency keys."""
        return await retried(lambda: console_store.find(self._line, org, keys))

    async def page(self, wanted: OrgJobFilter, *, after: UUID | None, limit: int) -> OrgJobPage:
        """Jobs, newest first, those older than ``after``.

        Looks at so many jobs and no more, whatever is asked for. Jobs that go on, and those that
        came to nothing, are found among their like; others among all.
        """
        below = after or newest_possible()
        above = _OLDEST
        if wanted.created_before is not None:
            below = min(below, at_moment(_later(wanted.created_before)))
        if wanted.created_after is not None:
            above = max(above, at_moment(_earlier(wanted.created_after)))
        if wanted.states is not None and set(wanted.states) <= set(LIVE):
            live = await self._walk(
                "walk_live", wanted, below, above, rows_max=_LIVE_ROWS_MAX, limit=limit + 1
            )
            if live.rows <= _LIVE_ROWS_MAX:
                return _cut(live.items, limit)
        way: console_store.Way = "walk"
        if wanted.states is not None and set(wanted.states) <= set(UNSUCCESSFUL):
            way = "walk_unsuccessful"
        found: list[OrgJob] = []
        first_step = max(_FIRST_STEP_ROWS, limit + 1)
        for rows_max in (first_step, WALKED_ROWS_MAX - first_step):
            step = await self._walk(
                way, wanted, below, above, rows_max=rows_max, limit=limit + 1 - len(found)
            )
            found += step.items
            if len(found) > limit or step.rows < rows_max:
                return _cut(found, limit)
            assert step.last is not None, "it walked over something"
            below = step.last
        return OrgJobPage(found, below)

    async def changes(
        self, org: str, reader: str | None, cursor: ChangeCursor, *, rows_max: int, limit: int
    ) -> Changes[OrgJob]:
        """What changed among the organisation's newest ``rows_max`` jobs: of ``reader``, and what
        is anyone's; or all."""
        try:
            return await retried(
                lambda: console_store.changes(
                    self._changes_line, org, reader, cursor, rows_max=rows_max, limit=limit
                )
            )
        except TookTooLong as error:
            raise DatabaseUnavailable("the look for changes took too long") from error

    async def attempts(self, org: str, job_id: UUID) -> tuple[Sequence[Attempt], datetime | None]:
        """A job's attempts that did not complete, and when a remote last began to work for it."""
        return await retried(lambda: console_store.attempts(self._line, org, job_id))

    async def log(
        self, org: str, job_id: UUID, *, after: int, limit: int
    ) -> tuple[Sequence[LogEntry], int | None]:
        """Log lines, alerts and what became of attempts, after the one numbered ``after``; and
        where to go on, if there may be more."""
        return await retried(
            lambda: console_store.log(
                self._line, org, job_id, after=after, rows_max=_LOG_WALKED_MAX, limit=limit
            )
        )

    async def input_of(self, org: str, job_id: UUID) -> bytes:
        """What a job was handed in with: its payload. Raises InputNotKept."""
        payload = await retried(lambda: console_store.input_of(self._line, org, job_id))
        if payload is None:
            raise InputNotKept(INPUT_GONE)
        return payload

    async def retry(
        self,
        job: OrgJob,
        *,
        idempotency_key: str | None,
        request_id: str | None,
        send: SendRetry | None = None,
    ) -> Ticket:
        """Create a job that does again what ``job`` was to do, or find the one its key names.

        ``send`` is another way to create it. Raises JobNotEnded or InputNotKept if there is nothing
        to retry, JobNotFound if it is gone.
        """
        send = send or partial(console_store.retry, self._line, job.uuid)
        view, traceparent = job.view, tracing.current()
        new = NewJob(
            view.org,
            new_id(),
            view.lane.value,
            view.endpoint,
            view.queue_key,
            view.failures_max,
            b"",  # the statement takes it from the old row
            idempotency_key,
            None if idempotency_key is None else retry_fingerprint(job.uuid),
            request_id,
            None if traceparent is None else encode({"traceparent": traceparent}).decode(),
        )
        looked_for_key = False

        async def insert(jobs: Sequence[NewJob]) -> Mapping[UUID, State]:
            nonlocal looked_for_key
            (one,) = jobs
            try:
                answer = await send(one)
            except NotFound:
                if looked_for_key:
                    raise
            else:
                if answer is not None and answer.created:
                    return {one.uuid: State.QUEUED}
                if looked_for_key:
                    # No job has the key: so it is the old one that stands in the way.
                    _refuse(answer)
            looked_for_key = True
            return {}

        return await self._submitter.submit_apart(self._line, new, insert)

    async def _walk(
        self,
        way: console_store.Way,
        wanted: OrgJobFilter,
        below: UUID,
        above: UUID,
        *,
        rows_max: int,
        limit: int,
    ) -> console_store.Walked:
        try:
            return await retried(
                lambda: console_store.walk(
                    self._list_db,
                    way,
                    wanted,
                    below=below,
                    above=above,
                    rows_max=rows_max,
                    limit=limit,
                )
            )
        except TookTooLong as error:
            raise DatabaseUnavailable("the list took too long to read; narrow it") from error


INPUT_GONE: Final = (
    "The job's input is not kept any more: that of a completed job never is, nor that of a job "
    "whose endpoint says so (`keep_input`). Hand it in again."
)


def retry_fingerprint(job: UUID) -> bytes:
    """What tells one use of a retry's key from another: which job it was to retry."""
    return hashlib.blake2b(b"retry\0" + job.bytes, digest_size=16).digest()


def _refuse(old: console_store.Retried | None) -> None:
    if old is None:
        raise JobNotFound("there is no such job")
    if not old.state.terminal:
        raise JobNotEnded("The job goes on; a job is retried once it has failed or was cancelled.")
    raise InputNotKept(INPUT_GONE)


def _cut(found: Sequence[OrgJob], limit: int) -> OrgJobPage:
    """A page of what was looked for with one more job than it has."""
    if len(found) <= limit:
        return OrgJobPage(found, None)
    return OrgJobPage(found[:limit], found[limit - 1].uuid)


def _later(moment: datetime) -> datetime:
    latest = datetime.max.replace(tzinfo=UTC) - _CLOCKS_DIFFER_BY
    return min(moment, latest) + _CLOCKS_DIFFER_BY


def _earlier(moment: datetime) -> datetime:
    earliest = datetime.min.replace(tzinfo=UTC) + _CLOCKS_DIFFER_BY
    return max(moment, earliest) - _CLOCKS_DIFFER_BY
