"""Turns a credential (an API key or a JWT) into a principal.

Results are cached for five minutes, but a revoked key must fail on every replica within a second.
So revocations are pushed (NOTIFY, with the commit), and a replica that cannot hear them does not
trust its cache: while the listener is disconnected, every credential is looked up again.

The push may overtake a look-up in flight that read the key while it was still valid. The cache's
epoch closes that gap: a value that was read before a drop is not stored after it.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from coatcheck.core.queries import tenants
from coatcheck.core.queries.tenants import UsableKey
from coatcheck.db.batcher import Batcher
from coatcheck.db.connection import Connection
from coatcheck.domain import tenants as api_keys
from coatcheck.domain.errors import DatabaseUnavailable, NotFound, OutcomeUnknown, Unauthenticated
from coatcheck.domain.tenants import ANYONE, USER_SCOPES, Org, OrgLimits, Principal
from coatcheck.http.auth.credential_watch import CredentialWatch, CredentialWatches
from coatcheck.settings import Settings

if TYPE_CHECKING:
    from coatcheck.http.auth.tokens import TokenCheck

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

ENTRIES_MAX: Final = 10_000


class RecentCache(Generic[Key, Value]):
    """A cache with a time to live: ``seconds_max`` a value, the newest ``entries_max`` values."""

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
        """Changes whenever anything is dropped. A caller reads it before it looks up a value, and
        passes it to ``put``: a value that was read before a drop must not be stored after it."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Value | None:
        entry = self._entries.get(key)
        if entry is None or entry[0] <= self._clock():
            return None
        return entry[1]

    def seconds_left(self, key: Key) -> float | None:
        """For how long a value stays in the cache; None if it is not there."""
        entry = self._entries.get(key)
        if entry is None or (left := entry[0] - self._clock()) <= 0:
            return None
        return left

    def put(self, key: Key, value: Value, *, epoch: int, seconds: float | None = None) -> None:
        """Store ``value`` for at most ``seconds``, unless something was dropped since ``epoch``."""
        ttl = self._seconds_max if seconds is None else min(seconds, self._seconds_max)
        if epoch != self.epoch or ttl <= 0:
            return
        self._entries.pop(key, None)  # so that it becomes the newest entry
        if len(self._entries) >= self._entries_max:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (self._clock() + ttl, value)

    def drop(self, is_stale: Callable[[Key, Value], bool]) -> None:
        """Drop the entries that are stale. Checks every entry: changes are rare, look-ups are
        not."""
        self.epoch += 1
        for key in [key for key, (_, value) in self._entries.items() if is_stale(key, value)]:
            del self._entries[key]

    def clear(self) -> None:
        self.epoch += 1
        self._entries.clear()


Found = TypeVar("Found")


async def looked_up(look_up: Awaitable[Found]) -> Found:
    """The result of a look-up. Raises DatabaseUnavailable in place of OutcomeUnknown: a read has no
    outcome that could be in doubt."""
    try:
        return await look_up
    except OutcomeUnknown as error:
        raise DatabaseUnavailable(str(error)) from error


_ROWS_MAX: Final = 500


class OrgLookUp:
    """Finds organisations in the database."""

    def __init__(self, db: Connection) -> None:
        self._db = db
        self._look_ups: Batcher[str, Org | None] = Batcher(self._find, rows_max=_ROWS_MAX)

    async def find(self, org: str) -> Org | None:
        """The organisation, if it has a row. Raises DatabaseUnavailable."""
        return await looked_up(self._look_ups.ask(org))

    async def drain(self) -> None:
        await self._look_ups.drain()

    async def _find(self, orgs: list[str]) -> Sequence[Org | None]:
        found = await tenants.find_orgs(self._db, set(orgs))
        return [found.get(org) for org in orgs]


_NO_DIGEST: Final = bytes(32)
"""Compared with the digest of an unknown key, so that it takes as long to refuse as a wrong one."""


class KeyCheck:
    """Finds the principal of an API key. Concurrent look-ups share one statement."""

    def __init__(self, pepper: bytes, db: Connection) -> None:
        self._pepper = pepper
        self._db = db
        self._look_ups: Batcher[str, UsableKey | None] = Batcher(self._find, rows_max=_ROWS_MAX)

    async def check(self, credential: bytes) -> tuple[Principal, float | None]:
        """The key's principal, and the seconds until the key expires. Raises Unauthenticated."""
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
        rows = await tenants.find_keys(self._db, set(key_ids))
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


REMEMBERED_SECONDS: Final = 300.0
CREDENTIAL_BYTES_MAX: Final = 8_192
_ORG_WORD: Final = "org:"


class Authenticator:
    """Checks credentials against the database and the trusted issuers.

    ``trusted`` says whether this process receives revocations at this moment. ``clock`` measures
    how long something is cached.
    """

    def __init__(
        self,
        settings: Settings,
        db: Connection,
        *,
        trusted: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trusted = trusted
        self._keys = KeyCheck(settings.require("key_pepper").encode(), db)
        self._tokens = _token_check(settings)
        self._orgs = OrgLookUp(db)
        self._known: RecentCache[bytes, Principal] = RecentCache(REMEMBERED_SECONDS, clock=clock)
        self._anonymous: RecentCache[str, Principal] = RecentCache(REMEMBERED_SECONDS, clock=clock)
        self._watches = CredentialWatches(self._seconds_left, trusted=trusted)

    def known(self, credential: bytes) -> Principal | None:
        """The credential's principal, if it is cached and the cache can be trusted."""
        principal = self._known.get(credential)
        return principal if principal is not None and self._trusted() else None

    async def check(self, credential: bytes) -> Principal:
        """The credential's principal. Raises Unauthenticated, or DatabaseUnavailable."""
        if len(credential) > CREDENTIAL_BYTES_MAX:
            raise Unauthenticated
        if credential.startswith(api_keys.PREFIX):
            principal, _ = await self._checked_key(credential)
            return principal
        trusted, epoch = self._trusted(), self._known.epoch
        if self._tokens is None:
            raise Unauthenticated
        token = await self._tokens.check(credential)
        limits = await self._limits(token.principal.org)
        principal = _limited(token.principal, limits)
        if trusted:
            self._known.put(credential, principal, epoch=epoch, seconds=token.seconds_left)
        return principal

    def watch(
        self, credential: bytes | None, wake: Callable[[], None]
    ) -> AbstractContextManager[CredentialWatch]:
        """Call ``wake`` once a credential that was checked is no longer valid.

        A key becomes invalid when it is revoked or expires; a token, which cannot be revoked, when
        it expires. For a caller without a credential ``wake`` is never called.
        """
        known = None if credential is None else self._known.seconds_left(credential)
        return self._watches.watch(credential, known if self._trusted() else None, wake)

    async def anonymous(self, org: str) -> Principal:
        """The principal of a caller without a credential. Raises NotFound, or
        DatabaseUnavailable."""
        known = self._anonymous.get(org)
        if known is not None and self._trusted():
            return known
        trusted, epoch = self._trusted(), self._anonymous.epoch
        found = await self._orgs.find(org)
        if found is None:
            raise NotFound("there is no such organisation")
        principal = _limited(Principal(org, "anonymous", ANYONE, USER_SCOPES), found.limits)
        if trusted:
            self._anonymous.put(org, principal, epoch=epoch)
        return principal

    def on_keys_changed(self, payload: str) -> None:
        """Drop the cache entries that a notification on the channel KEYS names."""
        if not payload:
            self.forget_all()
            return
        words = payload.split(",")
        orgs = {word.removeprefix(_ORG_WORD) for word in words if word.startswith(_ORG_WORD)}
        self._known.drop(lambda _, known: known.key_id in words or known.org in orgs)
        self._anonymous.drop(lambda org, _: org in orgs)
        # Also credentials that were dropped before, or never cached.
        self._watches.on_keys_changed(lambda credential: self._known.get(credential) is None)

    def forget_all(self) -> None:
        """Clear the cache: a notification may have been missed."""
        self._known.clear()
        self._anonymous.clear()
        self._watches.on_keys_changed()

    async def close(self) -> None:
        """Close the connections to issuers. The caller closes the database connection."""
        await self._watches.close()
        await self._keys.drain()
        await self._orgs.drain()
        if self._tokens is not None:
            await self._tokens.close()

    async def _checked_key(self, credential: bytes) -> tuple[Principal, float | None]:
        trusted, epoch = self._trusted(), self._known.epoch
        principal, seconds_left = await self._keys.check(credential)
        if trusted:
            self._known.put(credential, principal, epoch=epoch, seconds=seconds_left)
        return principal, seconds_left

    async def _seconds_left(self, credential: bytes) -> float | None:
        """For how long a credential that was admitted stays valid; None if it has no expiry.
        Raises Unauthenticated."""
        if credential.startswith(api_keys.PREFIX):
            _, seconds_left = await self._checked_key(credential)
            return seconds_left
        assert self._tokens is not None, "no token is admitted without an issuer"
        return self._tokens.seconds_left(credential)

    async def _limits(self, org: str) -> OrgLimits:
        # A trusted issuer may name an organisation that has no row: it has no limits.
        found = await self._orgs.find(org)
        return OrgLimits() if found is None else found.limits


def _token_check(settings: Settings) -> TokenCheck | None:
    if not settings.token_issuers:
        return None
    from coatcheck.http.auth.tokens import TokenCheck  # slow to import

    return TokenCheck(settings.token_issuers)


def _limited(principal: Principal, limits: OrgLimits) -> Principal:
    return replace(
        principal,
        org_rate=limits.rate,
        org_backlog_max=limits.backlog_max,
        org_timeout_max=limits.timeout_max,
    )
