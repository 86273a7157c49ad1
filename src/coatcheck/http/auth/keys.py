"""API keys, looked up by their id and compared by their digest."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Final

from coatcheck.core.queries import tenants
from coatcheck.core.queries.tenants import UsableKey
from coatcheck.db.batcher import Coalescer
from coatcheck.db.connection import Line
from coatcheck.db.errors import retried
from coatcheck.domain import api_keys
from coatcheck.domain.errors import Unauthenticated
from coatcheck.domain.identity import Principal
from coatcheck.http.auth.retry import looked_up

_ROWS_MAX: Final = 500
_NO_DIGEST: Final = bytes(32)
"""What an unknown key's digest is compared with: the answer takes as long as a wrong one's."""


class KeyCheck:
    """Finds the principal of a key. Those who ask meanwhile share the next statement."""

    def __init__(self, pepper: bytes, line: Line) -> None:
        self._pepper = pepper
        self._line = line
        self._look_ups: Coalescer[str, UsableKey | None] = Coalescer(self._find, rows_max=_ROWS_MAX)

    async def check(self, credential: bytes) -> tuple[Principal, float | None]:
        """Whose key it is, and for how many seconds still. Raises Unauthenticated."""
        key = api_keys.parse(credential)
        if key is None:
            raise Unauthenticated
        found = await looked_up(self._look_ups.ask(key.key_id))
        stored = _NO_DIGEST if found is None else found.digest
        matches = hmac.compare_digest(key.digest(self._pepper), stored)
        if found is None or not matches:
            raise Unauthenticated
        return _principal(found), found.seconds_left

    async def drain(self) -> None:
        await self._look_ups.drain()

    async def _find(self, key_ids: list[str]) -> Sequence[UsableKey | None]:
        rows = await retried(lambda: tenants.find_keys(self._line, set(key_ids)))
        found = {key.key_id: key for key in rows}
        return [found.get(key_id) for key_id in key_ids]


def _principal(key: UsableKey) -> Principal:
    return Principal(
        org=key.org,
        kind="key",
        owner=f"user:{key.user}",
        scopes=key.scopes,
        user=key.user,
        key_id=key.key_id,
        key_rate=key.rate,
        org_rate=key.org_limits.rate,
        org_backlog_max=key.org_limits.backlog_max,
        org_timeout_max=key.org_limits.timeout_max,
    )
