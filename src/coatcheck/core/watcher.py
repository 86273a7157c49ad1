"""Follows jobs: waits for their changes, and reads the output that they write.

Output is read as it comes, for many readers at once.

A notification wakes a stream, which then reads the new events. Streams that wake together, or
while a read is in flight, share the next read: a hundred followers cost hardly more than one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from coatcheck.core.queries import reports as report_store
from coatcheck.db.batcher import Batcher
from coatcheck.db.connection import PINNED_PLANS
from coatcheck.db.database import Database
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.job import JobEvent
from coatcheck.domain.states import State

LOOK_AGAIN_SECONDS = 1.0
_ANY = "any"
"""Replaces a job's id: any job."""


class Watcher:
    """Wakes those who wait for a job."""

    def __init__(self) -> None:
        self._waiters: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    @property
    def waits(self) -> int:
        """How many callers wait at this moment."""
        return sum(map(len, self._waiters.values()))

    def on_notification(self, payload: str) -> None:
        """Handle a notification: these jobs changed, or (if empty) any may have."""
        if not payload:
            self.wake_all()
            return
        for event in self._waiters.get(_ANY, ()):
            event.set()
        for word in payload.split(","):
            for event in self._waiters.get(word, ()):
                event.set()

    def wake_all(self) -> None:
        for events in self._waiters.values():
            for event in events:
                event.set()

    def watch(self, job_id: UUID) -> Watch:
        """Watch a job. Read it afterwards: no change after that read is missed."""
        return Watch(self._waiters, job_id.hex)

    def watch_all(self) -> Watch:
        """Watch all jobs of all organisations."""
        return Watch(self._waiters, _ANY)


class Watch:
    """One caller waiting for one job. A context manager."""

    def __init__(self, waiters: defaultdict[str, set[asyncio.Event]], word: str) -> None:
        self._waiters = waiters
        self._word = word
        self._event = asyncio.Event()

    def __enter__(self) -> Watch:
        self._waiters[self._word].add(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        events = self._waiters[self._word]
        events.discard(self._event)
        if not events:
            del self._waiters[self._word]

    def wake(self) -> None:
        """Make ``changed`` return, as if the job had changed."""
        self._event.set()

    async def changed(self, seconds_max: float) -> bool:
        """Wait until the job may have changed, or until it is time to poll.

        Returns True if a notification came.
        """
        try:
            async with asyncio.timeout(min(seconds_max, LOOK_AGAIN_SECONDS)):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


PAGE_EVENTS: Final = 200
PAGE_BYTES: Final = 256 * 1024
"""A page ends with the event that reaches this: memory is bounded, however much jobs write."""
_READ_ROWS_MAX: Final = 200

_Place = tuple[str, UUID, int]
"""An organisation, its job, and the last event that the reader has seen."""


@dataclass(slots=True, frozen=True)
class OutputTail:
    """A job's state and its new events. ``more``: the next page may already be there."""

    state: State
    attempt: int
    error_code: str | None
    error_message: str | None
    events: Sequence[JobEvent]
    more: bool


class OutputReader:
    """Reads the output of jobs."""

    def __init__(self, database: Database) -> None:
        self._db = database.pooled("output", server_settings=PINNED_PLANS)
        self._reader: Batcher[_Place, OutputTail | None] = Batcher(
            self._read, rows_max=_READ_ROWS_MAX
        )

    async def tail(self, org: str, job: UUID, after: int) -> OutputTail:
        """A page of events after the one numbered ``after``, and the job's state at the same
        moment: if the job has ended and the page is not full, no event follows.

        Raises JobNotFound.
        """
        found = await self._reader.ask((org, job, after))
        if found is None:
            raise JobNotFound("there is no such job")
        return found

    async def last_mark(self, org: str, job: UUID, mark: bytes) -> int:
        """The number of the last JSON chunk that begins with ``mark``; 0 if there is none.

        Reads all of the job's output: for a reader who is more than a page behind.
        """
        found = await report_store.last_mark(self._db, org, job, mark)
        return found or 0

    async def close(self) -> None:
        await self._reader.drain()

    async def _read(self, places: Sequence[_Place]) -> Sequence[OutputTail | None]:
        rows = await report_store.tails(self._db, {*places}, PAGE_EVENTS, PAGE_BYTES)
        found = {(row.org, row.job, row.after): _tail(row) for row in rows}
        return [found.get(place) for place in places]


def _tail(row: report_store.TailRow) -> OutputTail:
    state, events = State(row.state), row.events
    return OutputTail(
        state,
        row.failures + row.crashes + (1 if state.held or state is State.COMPLETED else 0),
        row.error_code,
        row.error_message,
        events,
        more=len(events) == PAGE_EVENTS or sum(len(each.data) for each in events) >= PAGE_BYTES,
    )
