"""Joins a client's retry to the chat that its first request made.

Clients such as OpenAI's give a request a time, hang up when that is over, and ask again of their
own accord. The chat goes on meanwhile, so the second request is for an answer that is already being
made; without more it would make another job, and the third another.

A request joins a job if it says that it is a retry, comes from the same caller with the same body,
and the job's synchronous caller is gone. That nobody waits is known to the database, not to a
process: who notices that a connection has ended writes a row for its job, and the retry, at
whichever server it arrives, takes the row away. One retry takes one row, so that identical requests
that run beside each other keep a job each.

A request that is no retry does nothing here but look for a header. A server that is killed notes
nothing: of its callers' jobs nobody knows that they are not waited for, and a retry makes a job as
any request does.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final
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
from coatcheck.products.llm.repository import LlmRepository

_log = logging.getLogger(__name__)

RETRY_COUNT_HEADER: Final = b"x-stainless-retry-count"
"""What clients made by Stainless, OpenAI's among them, say: 0 at first, then how often they have
asked before."""
_COUNT_DIGITS_MAX: Final = 9
JOINED: Final = (b"x-job-joined", b"true")
"""Tells a retry that it was joined to the job of an earlier request."""
_NOT_NOTED: Final = "a chat's caller has gone, which could not be noted: %s"


class SynchronousCallers:
    """Which chats lost the caller who waited for them, and who comes back for one.

    ``cancels_abandoned``: a chat whose caller has gone is cancelled instead.
    """

    def __init__(self, engine: Engine, *, cancels_abandoned: bool) -> None:
        self._engine = engine
        self._cancels_abandoned = cancels_abandoned
        self._noting: set[asyncio.Task[None]] = set()

    async def join(self, request: Request, payload: bytes) -> Ticket | None:
        """The job that a retry comes back for; None if the request is no retry, or there is none.

        Only for a request that is waited for and has neither an idempotency key nor a webhook.
        """
        if not _is_retry(request) or read_preferences(request).respond_async:
            return None
        if self._noting:
            await asyncio.wait(self._noting)  # one of them may be the very caller who is back
        principal = request.principal
        found = await self._engine.extension(LlmRepository).join_abandoned(
            principal.org, principal.owner, payload
        )
        if found is None:
            return None
        job, state = found
        _log.info("a retry has joined a chat", extra={"job_id": to_text(job)})
        return Ticket(job, state, created=False)

    def gone(self, org: str, job: UUID) -> asyncio.Task[None]:
        """Note that the caller who waited for a chat has gone. Need not be awaited."""
        noting = asyncio.create_task(self._note(org, job), name="llm caller gone")
        self._noting.add(noting)
        noting.add_done_callback(self._noting.discard)
        return noting

    async def sent_away(self, org: str, job: UUID) -> bool:
        """The caller is told to ask another server. Whether a retry of theirs joins the chat then;
        it goes on in any case."""
        try:
            return await self._engine.extension(LlmRepository).note_abandoned(org, job)
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.info(_NOT_NOTED, error, extra={"job_id": to_text(job)})
            return False

    async def _note(self, org: str, job: UUID) -> None:
        try:
            if self._cancels_abandoned:
                await self._cancel(org, job)
            else:
                await self._engine.extension(LlmRepository).note_abandoned(org, job)
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.info(_NOT_NOTED, error, extra={"job_id": to_text(job)})

    async def _cancel(self, org: str, job: UUID) -> None:
        if not await self._engine.extension(LlmRepository).is_for_its_caller(org, job):
            return
        try:
            await self._engine.cancel(to_text(job), org=org)
        except (JobAlreadyEnded, JobNotFound):
            return  # it was faster
        _log.info("a chat is cancelled: its caller has gone", extra={"job_id": to_text(job)})


def _is_retry(request: Request) -> bool:
    said = request.headers.get(RETRY_COUNT_HEADER)
    if said is None:
        return False
    count = said.strip()
    return count.isdigit() and len(count) <= _COUNT_DIGITS_MAX and int(count) > 0
