"""Keeps the log of webhooks short: what ended long ago goes, and URLs that nobody uses, and
endpoints that nobody fetches from any more."""

from __future__ import annotations

from typing import ClassVar, Final

from coatcheck.core.queries import webhook_endpoints, webhooks
from coatcheck.maintenance.loop import Loop

_ROWS_MAX: Final = 500
_LOOK_SECONDS: Final = 5.0


class WebhookKeeper(Loop):
    """It also ends what is still to be told to those who want nothing any more."""

    name: ClassVar[str] = "webhook keeper"

    async def tick(self) -> float:
        await webhook_endpoints.delete_unpulled(self._line)
        ended = await webhooks.end_disabled(self._line, _ROWS_MAX)
        pruned = await webhooks.prune(self._line, _ROWS_MAX)
        more = _ROWS_MAX in (ended, pruned.deliveries, pruned.targets)
        return 0.0 if more else _LOOK_SECONDS
