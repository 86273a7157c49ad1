"""What was found out lately, bounded in number and in time, and dropped when it changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

ENTRIES_MAX: Final = 10_000


class RecentCache(Generic[Key, Value]):
    """Remembers values for at most ``seconds_max`` each, the newest ``entries_max`` of them."""

    def __init__(
        self,
        seconds_max: float,
        *,
        entries_max: int = ENTRIES_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds_max = seconds_max
        self._entries_max = entries_max
        self._clock = clock
        self._entries: dict[Key, tuple[float, Value]] = {}
        self.epoch = 0
        """Changes whenever anything was dropped. Whoever looks a value up notes it before, and
        gives it to ``put``: what was read before the drop must not come in after it."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Value | None:
        entry = self._entries.get(key)
        if entry is None or entry[0] <= self._clock():
            return None
        return entry[1]

    def seconds_left(self, key: Key) -> float | None:
        """For how long a value will still be remembered; None if it is not."""
        entry = self._entries.get(key)
        if entry is None or (left := entry[0] - self._clock()) <= 0:
            return None
        return left

    def put(self, key: Key, value: Value, *, epoch: int, seconds: float | None = None) -> None:
        """Remember ``value``, no longer than ``seconds``, unless something was dropped since."""
        lasting = self._seconds_max if seconds is None else min(seconds, self._seconds_max)
        if epoch != self.epoch or lasting <= 0:
            return
        self._entries.pop(key, None)  # so that it goes to the end of the queue
        if len(self._entries) >= self._entries_max:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (self._clock() + lasting, value)

    def drop(self, gone: Callable[[Key, Value], bool]) -> None:
        """Forget what ``gone`` says. Looks at every entry: changes are rare, look-ups are not."""
        self.epoch += 1
        for key in [key for key, (_, value) in self._entries.items() if gone(key, value)]:
            del self._entries[key]

    def clear(self) -> None:
        self.epoch += 1
        self._entries.clear()
