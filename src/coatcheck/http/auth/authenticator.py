"""Turns a credential into a principal.

What was found is remembered for five minutes, but a revoked key must fail on every replica within a
second. So revocations are pushed (NOTIFY, with the commit), and whoever cannot hear them trusts no
memory: while the listener is away every credential is looked up anew.

The push may overtake a look-up that is still under way and read the key while it was valid. The
cache's epoch closes that gap: what was read before a drop is not remembered after it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

from coatcheck.db.connection import Line
from coatcheck.domain import api_keys
from coatcheck.domain.errors import NotFound, Unauthenticated
from coatcheck.domain.identity import ANYONE, USER_SCOPES, Principal
from coatcheck.domain.tenants import OrgLimits
from coatcheck.http.auth.cache import RecentCache
from coatcheck.http.auth.credential_watch import CredentialWatch, CredentialWatches
from coatcheck.http.auth.keys import KeyCheck
from coatcheck.http.auth.org_lookup import OrgLookUp
from coatcheck.http.auth.tokens import TokenCheck
from coatcheck.settings import Settings

REMEMBERED_SECONDS: Final = 300.0
CREDENTIAL_BYTES_MAX: Final = 8_192
_ORG_WORD: Final = "org:"


class Authenticator:
    """Checks credentials against the database and the trusted issuers.

    ``trusted`` says whether revocations are heard at this moment.
    """

    def __init__(self, settings: Settings, line: Line, *, trusted: Callable[[], bool]) -> None:
        self._trusted = trusted
        self._keys = KeyCheck(settings.require("key_pepper").encode(), line)
        self._tokens = TokenCheck(settings.token_issuers)
        self._orgs = OrgLookUp(line)
        self._known: RecentCache[bytes, Principal] = RecentCache(REMEMBERED_SECONDS)
        self._anonymous: RecentCache[str, Principal] = RecentCache(REMEMBERED_SECONDS)
        self._watches = CredentialWatches(self._seconds_left, trusted=trusted)

    def known(self, credential: bytes) -> Principal | None:
        """Whose credential it is, if that was found out lately and is sure to hold."""
        principal = self._known.get(credential)
        return principal if principal is not None and self._trusted() else None

    async def check(self, credential: bytes) -> Principal:
        """Whose credential it is. Raises Unauthenticated, or DatabaseUnavailable."""
        if len(credential) > CREDENTIAL_BYTES_MAX:
            raise Unauthenticated
        if credential.startswith(api_keys.PREFIX):
            principal, _ = await self._checked_key(credential)
            return principal
        heard, epoch = self._trusted(), self._known.epoch
        token = await self._tokens.check(credential)
        limits = await self._limits(token.principal.org)
        principal = _limited(token.principal, limits)
        if heard:
            self._known.put(credential, principal, epoch=epoch, seconds=token.seconds_left)
        return principal

    def watch(
        self, credential: bytes | None, wake: Callable[[], None]
    ) -> AbstractContextManager[CredentialWatch]:
        """Have ``wake`` called once a credential that was checked stops counting.

        A key stops when it is revoked or expires; a token, which cannot be revoked, when it
        expires. Nothing is ever lost by a caller without a credential.
        """
        known = None if credential is None else self._known.seconds_left(credential)
        return self._watches.watch(credential, known if self._trusted() else None, wake)

    async def anonymous(self, org: str) -> Principal:
        """A caller without a credential. Raises NotFound, or DatabaseUnavailable."""
        known = self._anonymous.get(org)
        if known is not None and self._trusted():
            return known
        heard, epoch = self._trusted(), self._anonymous.epoch
        found = await self._orgs.find(org)
        if found is None:
            raise NotFound("there is no such organisation")
        principal = _limited(Principal(org, "anonymous", ANYONE, USER_SCOPES), found.limits)
        if heard:
            self._anonymous.put(org, principal, epoch=epoch)
        return principal

    def heard(self, payload: str) -> None:
        """Forget what a notification on the channel KEYS is about."""
        if not payload:
            self.forget_all()
            return
        words = payload.split(",")
        orgs = {word.removeprefix(_ORG_WORD) for word in words if word.startswith(_ORG_WORD)}
        self._known.drop(lambda _, known: known.key_id in words or known.org in orgs)
        self._anonymous.drop(lambda org, _: org in orgs)
        # Also those that were dropped before, or never remembered.
        self._watches.heard(lambda credential: self._known.get(credential) is None)

    def forget_all(self) -> None:
        """Forget everything: something may have been said that was not heard."""
        self._known.clear()
        self._anonymous.clear()
        self._watches.heard()

    async def close(self) -> None:
        """Let go of the issuers' connections. The line stays the caller's to close."""
        await self._watches.close()
        await self._keys.drain()
        await self._orgs.drain()
        await self._tokens.close()

    async def _checked_key(self, credential: bytes) -> tuple[Principal, float | None]:
        heard, epoch = self._trusted(), self._known.epoch
        principal, seconds_left = await self._keys.check(credential)
        if heard:
            self._known.put(credential, principal, epoch=epoch, seconds=seconds_left)
        return principal, seconds_left

    async def _seconds_left(self, credential: bytes) -> float | None:
        """For how long a credential that was let in still counts. Raises Unauthenticated."""
        if credential.startswith(api_keys.PREFIX):
            _, seconds_left = await self._checked_key(credential)
            return seconds_left
        return self._tokens.seconds_left(credential)

    async def _limits(self, org: str) -> OrgLimits:
        # A trusted issuer may name an organisation that has no row: nothing limits it.
        found = await self._orgs.find(org)
        return OrgLimits() if found is None else found.limits


def _limited(principal: Principal, limits: OrgLimits) -> Principal:
    return replace(
        principal,
        org_rate=limits.rate,
        org_backlog_max=limits.backlog_max,
        org_timeout_max=limits.timeout_max,
    )
