"""Queries about organisations, users and API keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import asyncpg

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection
from coatcheck.db.notifications import KEYS
from coatcheck.domain.tenants import (
    DEFAULT_WORKSPACE,
    Org,
    OrgLimits,
    RateLimit,
    Scope,
    StoredApiKey,
)


@dataclass(frozen=True, slots=True)
class UsableKey:
    """A key that is neither revoked nor expired, with its limits and its organisation's."""

    key_id: str
    digest: bytes
    org: str
    user: str
    scopes: frozenset[Scope]
    rate: RateLimit | None
    org_limits: OrgLimits
    seconds_left: float | None
    """Until it expires, by the database's clock; None: never."""


async def find_keys(db: Connection, key_ids: Iterable[str]) -> list[UsableKey]:
    """The usable ones of these keys, of all organisations."""
    rows = await sql.fetch(db, "tenants/find_keys", keys=[*key_ids])
    return [
        UsableKey(
            row["key_id"],
            row["digest"],
            row["org_id"],
            row["user_id"],
            _scopes(row["scopes"]),
            _rate(row["key_requests"], row["key_seconds"]),
            OrgLimits(
                _rate(row["org_requests"], row["org_seconds"]),
                row["backlog_max"],
                row["timeout_max"],
            ),
            row["seconds_left"],
        )
        for row in rows
    ]


async def find_orgs(db: Connection, org_ids: Iterable[str]) -> dict[str, Org]:
    """The organisations with these ids; missing ones are left out."""
    rows = await sql.fetch(db, "tenants/find_orgs", orgs=[*org_ids])
    return {row["org_id"]: _org(row) for row in rows}


async def create_org(db: Connection, org: str, name: str, limits: OrgLimits) -> Org | None:
    """Create an organisation with the workspace ``default``; None if the id is taken."""
    rows = await sql.fetch(
        db,
        "tenants/create_org",
        org=org,
        name=name,
        workspace=DEFAULT_WORKSPACE,
        **_limits(limits),
    )
    return _org(rows[0]) if rows else None


async def limit_org(db: Connection, org: str, limits: OrgLimits) -> Org | None:
    """Set an organisation's limits on every replica, from now on. None: no such organisation."""
    rows = await sql.fetch(db, "tenants/limit_org", org=org, channel=KEYS, **_limits(limits))
    return _org(rows[0]) if rows else None


async def list_orgs(db: Connection) -> list[Org]:
    return [_org(row) for row in await sql.fetch(db, "tenants/list_orgs")]


async def create_key(
    db: Connection,
    org: str,
    key_id: str,
    *,
    user: str,
    name: str,
    digest: bytes,
    scopes: Iterable[Scope],
    rate: RateLimit | None = None,
    seconds_to_live: float | None = None,
) -> StoredApiKey | None:
    """Store a key that was just minted; None if there is no such organisation."""
    rows = await sql.fetch(
        db,
        "tenants/create_key",
        org=org,
        key=key_id,
        user=user,
        name=name,
        digest=digest,
        scopes=sorted(scope.value for scope in scopes),
        rate_requests=None if rate is None else rate.requests,
        rate_seconds=None if rate is None else rate.seconds,
        seconds_to_live=seconds_to_live,
    )
    return _key(rows[0]) if rows else None


async def reset_key(db: Connection, org: str, key_id: str, digest: bytes) -> bool:
    """Give a key another secret, and make it valid again. False: no such key."""
    return bool(
        await sql.fetch(db, "tenants/reset_key", org=org, key=key_id, digest=digest, channel=KEYS)
    )


async def list_keys(
    db: Connection, org: str, *, after: str | None, limit: int
) -> list[StoredApiKey]:
    """An organisation's keys, newest first, older than ``after``."""
    rows = await sql.fetch(db, "tenants/list_keys", org=org, after=after, limit=limit)
    return [_key(row) for row in rows]


async def get_key(db: Connection, org: str, key_id: str) -> StoredApiKey | None:
    rows = await sql.fetch(db, "tenants/get_key", org=org, key=key_id)
    return _key(rows[0]) if rows else None


async def revoke(db: Connection, org: str, key_id: str) -> bool:
    """Revoke a key for good, on every replica. False: no such key."""
    return bool(await sql.fetch(db, "tenants/revoke_key", org=org, key=key_id, channel=KEYS))


def _org(row: asyncpg.Record) -> Org:
    rate = _rate(row["rate_requests"], row["rate_seconds"])
    return Org(
        row["org_id"],
        row["name"],
        row["subscription"],
        OrgLimits(rate, row["backlog_max"], row["timeout_max"]),
        row["created_at"],
    )


def _key(row: asyncpg.Record) -> StoredApiKey:
    return StoredApiKey(
        row["org_id"],
        row["key_id"],
        row["user_id"],
        row["name"],
        _scopes(row["scopes"]),
        _rate(row["rate_requests"], row["rate_seconds"]),
        row["created_at"],
        row["expires_at"],
        row["revoked_at"],
    )


def _limits(limits: OrgLimits) -> dict[str, int | None]:
    return {
        "rate_requests": None if limits.rate is None else limits.rate.requests,
        "rate_seconds": None if limits.rate is None else limits.rate.seconds,
        "backlog_max": limits.backlog_max,
        "timeout_max": limits.timeout_max,
    }


def _rate(requests: int | None, seconds: int | None) -> RateLimit | None:
    return None if requests is None or seconds is None else RateLimit(requests, seconds)


def _scopes(names: list[str]) -> frozenset[Scope]:
    return frozenset(Scope(name) for name in names)
