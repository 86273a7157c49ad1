"""Waits for changes of jobs: woken by notifications, and by a poll every second."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from uuid import UUID

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
