"""Where a stream of changes stands, so that it can be resumed without a loss and without a repeat.

A *snapshot* is PostgreSQL's own account of which transactions had committed at a moment, in its
own spelling: ``xmin:xmax:xip,xip``. It knows nothing of clocks, nor of the order of ids, and
transactions that overlap are told apart exactly. What has changed after a snapshot is what was
written by a transaction that the snapshot does not see.

A look for changes goes from one snapshot to the next. What it finds is told in the order of ids, so
that a reader that is cut off in the middle can go on behind the last one that it was told.
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
"""What the id of an event of a stream of changes looks like."""

_SNAPSHOT: Final = re.compile(r"([0-9]{1,19}):([0-9]{1,19}):((?:[0-9]{1,19}(?:,[0-9]{1,19})*)?)")
_TRANSACTION_MAX: Final = (1 << 63) - 1
_FIRST: Final = UUID(int=0)

T = TypeVar("T")


class InvalidCursor(ValueError):
    """That is no id of an event."""


@dataclass(frozen=True, slots=True)
class ChangeCursor:
    """Behind an event. ``since`` is the snapshot up to which all was told; None at the beginning,
    which tells what has not ended. During a look, ``until`` is where the look goes to, and
    ``after`` the last id that was told."""

    since: str | None = None
    until: str | None = None
    after: UUID = _FIRST

    def __str__(self) -> str:
        if self.until is None:
            return self.since or ""
        return "~".join([self.since or "", self.until, to_text(self.after)])

    @classmethod
    def read(cls, text: str) -> ChangeCursor:
        """What ``str`` gave. Raises InvalidCursor."""
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
    """What a look found up to the snapshot ``until``, with the ids by which it is in order."""

    until: str
    items: Sequence[tuple[UUID, T]]


def _snapshot(text: str) -> str:
    """A snapshot that PostgreSQL would read."""
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
