"""What running jobs say, as it comes: one read for all who follow one.

A stream is woken by a notification and then reads what is new. Streams that were woken together, or
while the last read was under way, share the next one: a hundred that are followed cost hardly more
than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from coatcheck.core.queries import reports as report_store
from coatcheck.db.batcher import Batcher
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.errors import retried
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.job import JobEvent
from coatcheck.domain.states import State

PAGE_EVENTS: Final = 200
PAGE_BYTES: Final = 256 * 1024
"""A page ends with the event that reaches this, so that memory is bounded whatever jobs say."""
_READ_ROWS_MAX: Final = 200

_Place = tuple[str, UUID, int]
"""Whose job, which, and the last event that was seen of it."""


@dataclass(slots=True, frozen=True)
class OutputTail:
    """How a job stands, and what it said since. ``more``: there may be more to read already."""

    state: State
    attempt: int
    error_code: str | None
    error_message: str | None
    events: Sequence[JobEvent]
    more: bool


class OutputReader:
    """Reads what jobs say. Its connection is made when first needed."""

    def __init__(self, dsn: str) -> None:
        self._db = Connection(dsn, name="output", server_settings=PINNED_PLANS)
        self._reader: Batcher[_Place, OutputTail | None] = Batcher(
            self._read, rows_max=_READ_ROWS_MAX
        )

    async def tail(self, org: str, job: UUID, after: int) -> OutputTail:
        """The events after the one numbered ``after``, a page at most, and the job's state as of
        the same moment: an ended job says nothing after a page that is not full.

        Raises JobNotFound.
        """
        found = await self._reader.ask((org, job, after))
        if found is None:
            raise JobNotFound("there is no such job")
        return found

    async def last_mark(self, org: str, job: UUID, mark: bytes) -> int:
        """The number of the last JSON chunk that begins with ``mark``; 0 if there is none.

        Reads all that the job said: for a reader who finds more than a page.
        """
        found = await retried(lambda: report_store.last_mark(self._db, org, job, mark))
        return found or 0

    async def close(self) -> None:
        await self._reader.drain()
        await self._db.close()

    async def _read(self, places: Sequence[_Place]) -> Sequence[OutputTail | None]:
        rows = await retried(
            lambda: report_store.tails(self._db, {*places}, PAGE_EVENTS, PAGE_BYTES)
        )
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
