"""Sends notifications after the commit they tell of, and never one per row.

NOTIFY takes a cluster-wide lock at commit, so it stays out of the transactions it tells of, and a
busy sender folds what it has to say: the first goes out at once, the next after a short pause with
everything that came in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from coatcheck.db.channels import PAYLOAD_BYTES_MAX
from coatcheck.db.connection import Line
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown

_log = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.005


class Notifier:
    """Folds the words said on each channel into one notification."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._pending: dict[str, set[str] | None] = {}
        self._sender: asyncio.Task[None] | None = None

    def say(self, channel: str, words: Iterable[str] | None) -> None:
        """Send ``words`` on ``channel`` soon; None, or too many words, is sent as "look yourself".

        Never fails: a lost hint is found by polling.
        """
        if words is None:
            self._pending[channel] = None
        else:
            said = self._pending.setdefault(channel, set())
            if said is not None:
                said.update(words)
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_pending())

    async def drain(self) -> None:
        while self._sender is not None:
            await asyncio.shield(self._sender)

    async def _send_pending(self) -> None:
        try:
            while self._pending:
                pending, self._pending = self._pending, {}
                for channel, words in pending.items():
                    payload = ",".join(words or ())
                    if len(payload.encode()) > PAYLOAD_BYTES_MAX:
                        payload = ""
                    await self._line.fetch("SELECT pg_notify($1, $2)", channel, payload)
                await asyncio.sleep(_PAUSE_SECONDS)
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            self._pending = {}
            _log.info("notification not sent; polling will find the work: %s", error)
        finally:
            self._sender = None
