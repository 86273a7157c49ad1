"""Replicas of the control plane as far as credentials go: an authenticator that really listens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from coatcheck.core.queries import tenants
from coatcheck.db.connection import Connection
from coatcheck.db.notifications import KEYS, NotificationListener
from coatcheck.domain import tenants as api_keys
from coatcheck.domain.errors import Unauthenticated
from coatcheck.domain.tenants import USER_SCOPES, KeyText, OrgLimits
from coatcheck.http.auth import Authenticator
from coatcheck.settings import Settings

PEPPER = "pepper for tests, of 32 characters or more"
ORG = "acme"


class Replica:
    """An authenticator with a line and a listener of its own, wired as the control plane does."""

    def __init__(self, settings: Settings) -> None:
        self.line = CountedLine(settings.database_url, name="test auth")
        self.now: float | None = None
        """What the clock of its cache shows, if a test has stopped it."""
        self.is_deaf_and_trusting = False
        self.authenticator = Authenticator(
            settings,
            self.line,
            trusted=lambda: self.is_deaf_and_trusting or self.hears(),
            clock=lambda: time.monotonic() if self.now is None else self.now,
        )
        self.listener = NotificationListener(settings.database_url).subscribe(
            {KEYS: self._heard}, on_gap=self.authenticator.forget_all
        )
        self._news = asyncio.Event()

    def hears(self) -> bool:
        return self.listener.is_established

    def _heard(self, payload: str) -> None:
        self.authenticator.on_keys_changed(payload)
        self._news.set()

    async def news(self) -> None:
        """Wait until something was heard."""
        await self._news.wait()
        self._news.clear()

    async def accepts(self, credential: bytes) -> bool:
        """What the gate does: ask the memory, then the database."""
        if self.authenticator.known(credential) is not None:
            return True
        try:
            await self.authenticator.check(credential)
        except Unauthenticated:
            return False
        return True


class CountedLine(Connection):
    """A line that counts its statements."""

    statements = 0

    async def fetch(self, query: str, *arguments: Any) -> list[Any]:
        self.statements += 1
        return await super().fetch(query, *arguments)


@asynccontextmanager
async def replica(settings: Settings) -> AsyncIterator[Replica]:
    started = Replica(settings)
    await started.listener.start()
    await started.listener.listening()
    try:
        yield started
    finally:
        await started.listener.stop()
        await started.authenticator.close()
        await started.line.close()


async def new_org(line: Connection, org: str = ORG, limits: OrgLimits | None = None) -> None:
    assert await tenants.create_org(line, org, org.title(), limits or OrgLimits())


async def new_key(line: Connection, org: str = ORG, **options: Any) -> KeyText:
    """A key of the organisation, stored as the product stores it."""
    key = api_keys.mint()
    given = {"user": "ada", "name": "test", "scopes": USER_SCOPES} | options
    digest = key.digest(PEPPER.encode())
    assert await tenants.create_key(line, org, key.key_id, digest=digest, **given)
    return key


def spelt(key: KeyText) -> bytes:
    return key.text.encode()
