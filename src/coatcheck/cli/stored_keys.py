"""Creates, lists and revokes API keys in the database, without a server.

A module of its own, because commands that talk to a server must not import database code.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from coatcheck.cli.database import on_database
from coatcheck.client import ApiKey, KeyRate
from coatcheck.core.queries import tenants
from coatcheck.db.connection import Connection
from coatcheck.domain import tenants as api_keys
from coatcheck.domain.errors import NotFound
from coatcheck.domain.tenants import USER_SCOPES, RateLimit, Scope, StoredApiKey
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
    ) -> ApiKey:
        key = api_keys.mint()
        digest = key.digest(self._settings.require("key_pepper").encode())
        rate = None if rate_limit is None else RateLimit(rate_limit.requests, rate_limit.seconds)
        created = on_database(
            self._settings,
            lambda db: tenants.create_key(
                db,
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
        return _in_api_form(created, key.text)

    def list_all(self) -> list[ApiKey]:
        async def all_pages(db: Connection) -> list[StoredApiKey]:
            keys: list[StoredApiKey] = []
            while True:
                after = keys[-1].key_id if keys else None
                page = await tenants.list_keys(db, self.org, after=after, limit=_PAGE_ROWS)
                keys += page
                if len(page) < _PAGE_ROWS:
                    return keys

        return [_in_api_form(key) for key in on_database(self._settings, all_pages)]

    def revoke(self, key_id: str) -> bool:
        return on_database(self._settings, lambda db: tenants.revoke(db, self.org, key_id))


def _in_api_form(key: StoredApiKey, secret: str | None = None) -> ApiKey:
    """The key in the form of the API."""
    rate = key.rate
    return ApiKey(
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
