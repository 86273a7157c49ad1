"""Manages an organisation's keys in the database, for users who have no key for a server yet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from coatcheck.cli.database import on_database
from coatcheck.client import ApiKey as ShownKey
from coatcheck.client import KeyRate
from coatcheck.core.queries import tenants
from coatcheck.db.connection import Line
from coatcheck.domain import api_keys
from coatcheck.domain.errors import NotFound
from coatcheck.domain.identity import USER_SCOPES, RateLimit, Scope
from coatcheck.domain.tenants import ApiKey
from coatcheck.settings import Settings

_PAGE_ROWS: Final = 200
_USER: Final = "dev"


class StoredKeys:
    """The keys in the database. Creating one needs the same pepper as the servers."""

    def __init__(self, settings: Settings, org: str) -> None:
        self.org = org
        self._settings = settings

    def create(
        self,
        name: str,
        *,
        user: str | None,
        scopes: Iterable[str] | None,
        expires_in_seconds: int | None,
        rate_limit: KeyRate | None,
    ) -> ShownKey:
        key = api_keys.mint()
        digest = key.digest(self._settings.require("key_pepper").encode())
        rate = None if rate_limit is None else RateLimit(rate_limit.requests, rate_limit.seconds)
        created = on_database(
            self._settings,
            lambda line: tenants.create_key(
                line,
                self.org,
                key.key_id,
                user=user or _USER,
                name=name,
                digest=digest,
                scopes=frozenset(map(Scope, scopes)) if scopes else USER_SCOPES,
                rate=rate,
                seconds_to_live=expires_in_seconds,
            ),
        )
        if created is None:
            raise NotFound(
                f"organisation {self.org!r} not found\n"
                f"Run `coatcheck orgs create {self.org}` to create it."
            )
        return _shown(created, key.text)

    def list_all(self) -> list[ShownKey]:
        async def all_pages(line: Line) -> list[ApiKey]:
            keys: list[ApiKey] = []
            while True:
                after = keys[-1].key_id if keys else None
                page = await tenants.list_keys(line, self.org, after=after, limit=_PAGE_ROWS)
                keys += page
                if len(page) < _PAGE_ROWS:
                    return keys

        return [_shown(key) for key in on_database(self._settings, all_pages)]

    def revoke(self, key_id: str) -> bool:
        return on_database(self._settings, lambda line: tenants.revoke(line, self.org, key_id))


def _shown(key: ApiKey, secret: str | None = None) -> ShownKey:
    """The key in the form of the API."""
    rate = key.rate
    return ShownKey(
        id=key.key_id,
        org_id=key.org,
        user=key.user,
        name=key.name,
        scopes=tuple(sorted(key.scopes)),
        rate_limit=None if rate is None else KeyRate(rate.requests, rate.seconds),
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        key=secret,
    )
