"""Cursors for a stream of changes, so that it resumes without loss and without repetition.

A *snapshot* is PostgreSQL's own record of which transactions had committed at a moment, in its own
notation: ``xmin:xmax:xip,xip``. It does not depend on clocks or on the order of ids, and separates
overlapping transactions exactly. A row changed after a snapshot if it was written by a transaction
that the snapshot does not see.

A poll for changes goes from one snapshot to the next. It returns its rows in the order of their
ids, so that a reader that is cut off in the middle can continue after the last one it received.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from uuid import UUID

from coatcheck.domain.ids import InvalidId, from_text, to_text

CURSOR_CHARACTERS_MAX: Final = 8_000
CURSOR: Final = f"^[0-9A-Z:,~]{{0,{CURSOR_CHARACTERS_MAX}}}$"
"""The pattern of event ids in a stream of changes."""

_SNAPSHOT: Final = re.compile(r"([0-9]{1,19}):([0-9]{1,19}):((?:[0-9]{1,19}(?:,[0-9]{1,19})*)?)")
_TRANSACTION_MAX: Final = (1 << 63) - 1
_FIRST: Final = UUID(int=0)

T = TypeVar("T")


class InvalidCursor(ValueError):
    """The text is not an event id."""


@dataclass(frozen=True, slots=True)
class ChangeCursor:
    """A position after an event. Everything up to the snapshot ``since`` was sent; None is the
    beginning, which sends all jobs that have not ended. During a poll, ``until`` is its target
    snapshot and ``after`` the last id that was sent."""

    since: str | None = None
    until: str | None = None
    after: UUID = _FIRST

    def __str__(self) -> str:
        if self.until is None:
            return self.since or ""
        return "~".join([self.since or "", self.until, to_text(self.after)])

    @classmethod
    def read(cls, text: str) -> ChangeCursor:
        """Parse what ``str`` returned. Raises InvalidCursor."""
        if not text:
            return cls()
        if len(text) > CURSOR_CHARACTERS_MAX:
            raise InvalidCursor
        parts = text.split("~")
        if len(parts) == 1:
            return cls(_snapshot(text))
        if len(parts) != 3:
            raise InvalidCursor
        since, until, after = parts
        try:
            uuid = from_text(after)
        except InvalidId as error:
            raise InvalidCursor from error
        return cls(_snapshot(since) if since else None, _snapshot(until), uuid)


@dataclass(frozen=True, slots=True)
class Changes(Generic[T]):
    """The rows that a poll found up to the snapshot ``until``, each with the id it is sorted by."""

    until: str
    items: Sequence[tuple[UUID, T]]


def _snapshot(text: str) -> str:
    """Check that PostgreSQL would accept the snapshot."""
    found = _SNAPSHOT.fullmatch(text)
    if found is None:
        raise InvalidCursor
    first, next_one = int(found[1]), int(found[2])
    running = [int(each) for each in found[3].split(",") if each]
    if not 0 < first <= next_one <= _TRANSACTION_MAX:
        raise InvalidCursor
    if running != sorted(running) or any(not first <= each < next_one for each in running):
        raise InvalidCursor
    return text
