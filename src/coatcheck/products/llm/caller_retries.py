"""Joins a client's retry to the chat that its first request made.

Clients such as OpenAI's have a timeout for a request, hang up when it is over, and retry
automatically. The chat goes on meanwhile, so the second request asks for an answer that is already
being made. Without this module it would make another job, and the third request another.

A request joins a job if it says that it is a retry, comes from the same caller with the same body,
and the job's synchronous caller has left. The database knows that nobody waits, not a process: the
server that notices the end of a connection writes a row for its job, and the retry, at any server,
marks the row as its own. One retry takes one row, so that identical requests at the same time keep
one job each.

A request that is not a retry only has a header read. A server that is killed writes no rows: the
retries of its callers make new jobs, as any request does.
"""

from __future__ import annotations

import asyncio
import logging
from typing import ClassVar, Final
from uuid import UUID

from coatcheck.core import Engine, Ticket
from coatcheck.domain.errors import (
    DatabaseUnavailable,
    JobAlreadyEnded,
    JobNotFound,
    OutcomeUnknown,
)
from coatcheck.domain.ids import to_text
from coatcheck.http.parameters import read_preferences
from coatcheck.http.request import Request
from coatcheck.maintenance.loop import Loop
from coatcheck.products.llm import repository
from coatcheck.products.llm.repository import LlmRepository

_log = logging.getLogger(__name__)

RETRY_COUNT_HEADER: Final = b"x-stainless-retry-count"
"""Sent by clients that Stainless generates, OpenAI's among them: 0 at first, then the number of
earlier requests."""
_COUNT_DIGITS_MAX: Final = 9
JOINED: Final = (b"x-job-joined", b"true")
"""The header of an answer to a retry that joined the job of an earlier request."""
_NOT_RECORDED: Final = "a chat's caller left, which could not be recorded: %s"


class SynchronousCallers:
    """Records which chats lost their synchronous caller, and joins retries to them.

    ``cancels_abandoned``: cancel a chat whose caller left instead.
    """

    def __init__(self, engine: Engine, *, cancels_abandoned: bool) -> None:
        self._engine = engine
        self._cancels_abandoned = cancels_abandoned
        self._pending: set[asyncio.Task[None]] = set()

    async def join(self, request: Request, payload: bytes) -> Ticket | None:
        """The job that a retry joins; None if the request is not a retry, or there is no such job.

        Only for a synchronous request that has neither an idempotency key nor a webhook.
        """
        if not _is_retry(request) or read_preferences(request).respond_async:
            return None
        if self._pending:
            await asyncio.wait(self._pending)  # one of them may be this very caller
        principal = request.principal
        found = await self._engine.extension(LlmRepository).join_abandoned(
            principal.org, principal.owner, payload
        )
        if found is None:
            return None
        job, state = found
        _log.info("a retry joined a chat", extra={"job_id": to_text(job)})
        return Ticket(job, state, created=False)

    def caller_left(self, org: str, job: UUID) -> asyncio.Task[None]:
        """Record that the synchronous caller of a chat left. Need not be awaited."""
        task = asyncio.create_task(self._record(org, job), name="llm caller left")
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task

    async def detach_caller(self, org: str, job: UUID) -> bool:
        """Record that the caller is sent to another server. Returns whether their retry will join
        the chat, which goes on in any case."""
        try:
            return await self._engine.extension(LlmRepository).mark_abandoned(org, job)
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.info(_NOT_RECORDED, error, extra={"job_id": to_text(job)})
            return False

    async def _record(self, org: str, job: UUID) -> None:
        try:
            if self._cancels_abandoned:
                await self._cancel(org, job)
            else:
                await self._engine.extension(LlmRepository).mark_abandoned(org, job)
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.info(_NOT_RECORDED, error, extra={"job_id": to_text(job)})

    async def _cancel(self, org: str, job: UUID) -> None:
        if not await self._engine.extension(LlmRepository).is_for_its_caller(org, job):
            return
        try:
            await self._engine.cancel(to_text(job), org=org)
        except (JobAlreadyEnded, JobNotFound):
            return  # the job ended first
        _log.info("a chat is cancelled: its caller left", extra={"job_id": to_text(job)})


def _is_retry(request: Request) -> bool:
    header = request.headers.get(RETRY_COUNT_HEADER)
    if header is None:
        return False
    count = header.strip()
    return count.isdigit() and len(count) <= _COUNT_DIGITS_MAX and int(count) > 0


_ROWS_MAX: Final = 500
_LOOK_SECONDS: Final = 5.0


class AbandonedChatPruner(Loop):
    name: ClassVar[str] = "abandoned chats"

    async def tick(self) -> float:
        deleted = await repository.delete_abandoned(self._db, _ROWS_MAX)
        return 0.0 if deleted == _ROWS_MAX else _LOOK_SECONDS
