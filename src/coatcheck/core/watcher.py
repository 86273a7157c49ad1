"""Waits for jobs to change: woken by notification, or by looking again after a while."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from uuid import UUID

_LOOK_AGAIN_SECONDS = 1.0
_ANY = "any"
"""In place of the id of a job."""


class Watcher:
    """Wakes whoever waits for a job."""

    def __init__(self) -> None:
        self._waiters: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    def heard(self, payload: str) -> None:
        """A notification: these jobs changed, or (empty) any may have."""
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
        """Begin to watch a job; looking at it after this misses nothing."""
        return Watch(self._waiters, job_id.hex)

    def watch_all(self) -> Watch:
        """Begin to watch all jobs, whosever they are."""
        return Watch(self._waiters, _ANY)


class Watch:
    """One waiter's interest in one job. A context manager."""

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
        """Have ``changed`` return, as if the job had changed."""
        self._event.set()

    async def changed(self, seconds_max: float) -> bool:
        """Return when the job may have changed; at the latest when it is time to look anyway.

        Whether it was told so.
        """
        try:
            async with asyncio.timeout(min(seconds_max, _LOOK_AGAIN_SECONDS)):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True
