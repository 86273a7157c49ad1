"""Watches the credentials of open responses, and ends a response whose credential becomes invalid.

A stream, or a response that waits for the end of a job, goes on after its caller was admitted. So
every open response watches its credential. A watched credential is looked up again when keys change
(NOTIFY), when it expires, and every second while the database is silent. One look-up serves all
open responses with the same credential.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from coatcheck.domain.errors import DatabaseUnavailable, Unauthenticated

LOOK_SECONDS: Final = 1.0
"""The interval at which due times are checked, and the delay before a failed look-up is retried."""
LOOK_AGAIN_SECONDS_MAX: Final = 300.0
"""The longest time between two look-ups of a credential."""

Check = Callable[[bytes], Awaitable[float | None]]
"""The seconds for which a credential stays valid; None if it has no expiry. Raises Unauthenticated,
or DatabaseUnavailable."""


class CredentialWatch:
    """One open response's watch on its credential. ``lost`` is set once it is invalid."""

    __slots__ = ("_held", "lost", "wake")

    def __init__(self, held: _Held | None, wake: Callable[[], None]) -> None:
        self._held = held
        self.wake = wake
        self.lost = False

    async def is_valid(self) -> bool:
        """Whether the credential is valid; waits for a look-up in flight."""
        if self._held is not None and self._held.looking is not None:
            await asyncio.shield(self._held.looking)
        return not self.lost


class _Held:
    """A credential of open responses."""

    __slots__ = ("again", "look_at", "looking", "watches")

    def __init__(self) -> None:
        self.watches: set[CredentialWatch] = set()
        self.look_at = 0.0
        self.looking: asyncio.Task[None] | None = None
        self.again = False
        """Keys changed since the look-up in flight began."""


class CredentialWatches:
    """The credentials of all open responses of this server.

    ``trusted`` says whether this process receives changes of keys at this moment.
    """

    def __init__(self, check: Check, *, trusted: Callable[[], bool]) -> None:
        self._check = check
        self._trusted = trusted
        self._held: dict[bytes, _Held] = {}
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def watch(
        self, credential: bytes | None, seconds_left: float | None, wake: Callable[[], None]
    ) -> Iterator[CredentialWatch]:
        """Call ``wake`` once the credential is invalid; never if there is no credential.

        ``seconds_left`` is for how long it is known to be valid; None if that is not known.
        """
        if credential is None:
            yield CredentialWatch(None, wake)
            return
        held = self._held.get(credential)
        if held is None:
            held = self._held[credential] = _Held()
            held.look_at = time.monotonic() + (seconds_left or 0.0)
        watch = CredentialWatch(held, wake)
        held.watches.add(watch)
        if seconds_left is None:
            self._look(credential, held)  # it may have become invalid since it was admitted
        if self._timer is None:
            self._arm()
        try:
            yield watch
        finally:
            held.watches.discard(watch)
            if not held.watches and self._held.get(credential) is held:
                del self._held[credential]

    def on_keys_changed(self, may_be_affected: Callable[[bytes], bool] = lambda _: True) -> None:
        """Keys have changed: look up the credentials that may be affected."""
        for credential, held in list(self._held.items()):
            if may_be_affected(credential):
                self._look(credential, held)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        looking = [held.looking for held in self._held.values() if held.looking is not None]
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look_at_times)

    def _look_at_times(self) -> None:
        self._timer = None
        now, trusted = time.monotonic(), self._trusted()
        for credential, held in list(self._held.items()):
            if not trusted or held.look_at <= now:
                self._look(credential, held)
        if self._held:
            self._arm()

    def _look(self, credential: bytes, held: _Held) -> None:
        if held.looking is None:
            held.looking = asyncio.create_task(self._looked_up(credential, held))
        else:
            held.again = True

    async def _looked_up(self, credential: bytes, held: _Held) -> None:
        try:
            while True:
                held.again = False
                held.look_at = time.monotonic() + await self._next_look(credential, held)
                if not held.again or not held.watches:
                    return
        finally:
            held.looking = None

    async def _next_look(self, credential: bytes, held: _Held) -> float:
        try:
            seconds_left = await self._check(credential)
        except Unauthenticated:
            for watch in tuple(held.watches):
                watch.lost = True
                watch.wake()
            return LOOK_AGAIN_SECONDS_MAX
        except DatabaseUnavailable:
            return LOOK_SECONDS  # the reader learns of it when the stream reads the database
        if seconds_left is None:
            return LOOK_AGAIN_SECONDS_MAX
        return min(max(seconds_left, LOOK_SECONDS), LOOK_AGAIN_SECONDS_MAX)
