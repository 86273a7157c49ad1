"""Queries about the catalogue of services."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

import asyncpg
import msgspec

from coatcheck.core.queries import sql
from coatcheck.core.queries.service_secrets import Sealed
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.notifications import SERVICES
from coatcheck.db.queries import in_transaction
from coatcheck.domain.catalogue import (
    EndpointSpec,
    Forgotten,
    PublishedDefinition,
    ServiceSpec,
    ServiceSummary,
    VersionSpec,
)
from coatcheck.domain.limits import UNSERVED_ENDPOINT_SECONDS
from coatcheck.domain.service_definition import engine_name

CODE_ORG: Final = ""
"""The organisation of services that code declares: they are everybody's."""
CODE_WORKSPACE: Final = "default"

_WRITE_LOCK: Final = 0x436F_5365  # "CoSe"
"""The class of the advisory locks for registering and deleting services."""
_PUBLISHED_LOCK: Final = 0x436F_6174_5075  # "CoatPu"


class SecretsChanged(Exception):
    """The secrets that a registration keeps were replaced since they were read."""


ServiceKey = tuple[str, str]
"""An organisation and the name of a service."""


class _StoredVersion(msgspec.Struct):
    endpoints: tuple[EndpointSpec, ...]


class _StoredService(msgspec.Struct):
    versions: dict[int, _StoredVersion]


_decode: Final = msgspec.json.Decoder(_StoredService).decode
_decode_endpoint: Final = msgspec.json.Decoder(EndpointSpec).decode
_decode_numbers: Final = msgspec.json.Decoder(list[str]).decode
_decode_counts: Final = msgspec.json.Decoder(list[int]).decode
_encode: Final = msgspec.json.encode


async def find(db: Connection, keys: Sequence[ServiceKey]) -> dict[ServiceKey, ServiceSpec]:
    """The service of each name, as each organisation sees it; missing ones are left out."""
    rows = await sql.fetch(
        db,
        "services/find",
        orgs=[org for org, _ in keys],
        services=[service for _, service in keys],
    )
    specs: dict[ServiceKey, ServiceSpec] = {}
    found: dict[ServiceKey, ServiceSpec] = {}
    for row in rows:
        own = (row["org_id"], row["service_id"])
        if own not in specs:  # code's is everybody's: decode it once
            specs[own] = _spec(row)
            await asyncio.sleep(0)  # decoding may take milliseconds: let other tasks run
        found[row["asked_by"], row["service_id"]] = specs[own]
    return found


async def list_services(
    db: Connection, org: str, workspace: str | None, *, after: str, limit: int
) -> list[ServiceSummary]:
    """The services that an organisation can call, by name, after the name ``after``."""
    rows = await sql.fetch(
        db, "services/list", org=org, workspace=workspace, after=after, limit=limit
    )
    return [_summary(row) for row in rows]


async def count(db: Connection, org: str) -> int:
    """How many services an organisation has registered."""
    services: int = await sql.value(db, "services/count", org=org)
    return services


async def list_code(db: Connection) -> list[ServiceSpec]:
    """The services that workers' code declares."""
    return [_spec(row) for row in await sql.fetch(db, "services/list_code")]


async def publish(
    connection: RawConnection, boot: int, versions: Mapping[str, Sequence[VersionSpec]]
) -> None:
    """Publish what a worker's code declares, by service, in the transaction that registers it.

    The caller holds the lock (``lock_published``).
    """
    given = [
        (_encode(endpoint).decode(), position)
        for specs in versions.values()
        for each in specs
        for position, endpoint in enumerate(each.endpoints)
    ]
    definitions, positions = [text for text, _ in given], [position for _, position in given]
    await sql.fetch(
        connection, "services/publish", boot=boot, definitions=definitions, positions=positions
    )
    await resolve(connection)


async def lock_published(connection: RawConnection) -> None:
    """Lock what code publishes, until the transaction ends."""
    await sql.fetch(connection, "services/lock_published", lock=_PUBLISHED_LOCK)


async def resolve(connection: RawConnection, also: Collection[str] = ()) -> list[str]:
    """Put into force what live workers publish, in the caller's transaction and under its lock.
    Returns the services that this changed. ``also`` names services that have changed already."""
    rows = await sql.fetch(
        connection, "services/mark_served", unserved_seconds=float(UNSERVED_ENDPOINT_SECONDS)
    )
    marked = sorted({row["service_id"] for row in rows}.union(also))
    if not marked:
        return []
    changed = await sql.fetch(
        connection, "services/resolve", services=marked, workspace=CODE_WORKSPACE, channel=SERVICES
    )
    await sql.fetch(connection, "services/declare_limits", services=marked)
    return [row["service_id"] for row in changed]


async def resolve_published(db: Connection) -> list[str]:
    """As ``resolve``, in its own transaction, for workers that came or went.

    It does not wait: while another process holds the lock, it does nothing. That process puts its
    changes into force itself; if it is frozen, the caller can go on with other work.
    """

    async def write(connection: RawConnection) -> list[str]:
        async with connection.transaction():
            if not await sql.value(connection, "services/try_lock_published", lock=_PUBLISHED_LOCK):
                return []
            return await resolve(connection)

    return await db.run(write)


async def list_published(db: Connection) -> list[PublishedDefinition]:
    """Every definition that workers publish or recently did; the one in force comes first for each
    endpoint."""
    rows = await sql.fetch(db, "services/published")
    return [
        PublishedDefinition(
            _decode_endpoint(row["definition"]),
            row["published_at"],
            row["unserved_since"],
            tuple(row["names"]),
            tuple(row["boots"]),
        )
        for row in rows
    ]


async def forget(
    db: Connection, service: str, version: int | None = None, key: str | None = None
) -> Forgotten:
    """Delete endpoints of code from the catalogue that no live worker publishes: of a service, of
    one of its versions, or a single one. Those of a silent worker stay while it may hold jobs;
    after that they are deleted, and published again if the worker comes back."""
    named = {"service": service, "version": version, "endpoint": key}

    async def write(connection: RawConnection) -> tuple[list[asyncpg.Record], list[asyncpg.Record]]:
        await lock_published(connection)
        await sql.fetch(connection, "services/end_silent", **named)
        forgotten = await sql.fetch(connection, "services/forget", **named)
        if forgotten:
            await resolve(connection, [service])
        return forgotten, await sql.fetch(connection, "services/published_endpoints", **named)

    forgotten, left = await in_transaction(db, write)
    return Forgotten(_names(service, forgotten), _names(service, left))


def _names(service: str, rows: Sequence[asyncpg.Record]) -> tuple[str, ...]:
    endpoints = sorted({(row["version"], row["key"]) for row in rows})
    return tuple(engine_name(service, version, key) for version, key in endpoints)


async def put(
    db: Connection,
    org: str,
    workspace: str,
    service: str,
    versions: Iterable[VersionSpec],
    services_max: int,
    sealed: Sequence[Sealed] = (),
    kept: Mapping[UUID, str] = MappingProxyType({}),
) -> ServiceSpec | None:
    """Register an organisation's service with its ``sealed`` secrets. None if the name is taken, or
    the organisation is at its limit.

    ``kept`` are the stored texts of secrets that it keeps. Raises SecretsChanged if they have
    changed: the texts that were read would undo another registration.
    """

    async def write(connection: RawConnection) -> list[asyncpg.Record]:
        await sql.fetch(connection, "services/lock", lock=_WRITE_LOCK, org=org, service=service)
        if kept:
            found = await sql.fetch(
                connection, "service_secrets/find", orgs=[org] * len(kept), ids=[*kept]
            )
            if {row["id"]: row["sealed"] for row in found} != kept:
                raise SecretsChanged
        return await sql.fetch(
            connection,
            "services/put",
            org=org,
            workspace=workspace,
            service=service,
            definition=_encoded(versions),
            channel=SERVICES,
            notification=_said(org, service),
            **_columns(sealed),
            services_max=services_max,
        )

    rows = await in_transaction(db, write)
    return _spec(rows[0]) if rows else None


async def delete(db: Connection, org: str, service: str, workspace: str | None) -> bool:
    """Delete an organisation's service. Returns whether there was one."""

    async def write(connection: RawConnection) -> list[asyncpg.Record]:
        await sql.fetch(connection, "services/lock", lock=_WRITE_LOCK, org=org, service=service)
        return await sql.fetch(
            connection,
            "services/delete",
            org=org,
            service=service,
            workspace=workspace,
            channel=SERVICES,
            notification=_said(org, service),
        )

    return bool(await in_transaction(db, write))


async def unsealed(db: Connection, rows_max: int) -> list[tuple[ServiceSpec, str]]:
    """Services whose definitions hold plain secrets, each with its definition as stored."""
    rows = await sql.fetch(db, "services/unsealed", rows_max=rows_max)
    return [(_spec(row), row["definition"]) for row in rows]


async def seal(
    db: Connection,
    spec: ServiceSpec,
    before: str,
    versions: Iterable[VersionSpec],
    sealed: Sequence[Sealed],
) -> bool:
    """Replace the definition ``before`` by ``versions``, which hold no secret. Returns whether it
    was still there."""

    async def write(connection: RawConnection) -> list[asyncpg.Record]:
        async with connection.transaction():
            await sql.fetch(
                connection, "services/lock", lock=_WRITE_LOCK, org=spec.org, service=spec.service
            )
            return await sql.fetch(
                connection,
                "services/seal",
                org=spec.org,
                service=spec.service,
                before=before,
                definition=_encoded(versions),
                channel=SERVICES,
                notification=_said(spec.org, spec.service),
                **_columns(sealed),
            )

    return bool(await db.run(write))


def _encoded(versions: Iterable[VersionSpec]) -> str:
    stored = _StoredService({each.version: _StoredVersion(each.endpoints) for each in versions})
    return _encode(stored).decode()


def _columns(sealed: Sequence[Sealed]) -> dict[str, list[Any]]:
    return {
        "secret_ids": [each.id for each in sealed],
        "secret_endpoints": [each.endpoint_id for each in sealed],
        "secret_texts": [each.text for each in sealed],
    }


def _said(org: str, service: str) -> str:
    return f"{org}/{service}"


def _summary(row: asyncpg.Record) -> ServiceSummary:
    numbers = _decode_numbers(row["version_numbers"])
    counts = _decode_counts(row["endpoint_counts"])
    return ServiceSummary(
        org=row["org_id"],
        workspace=row["workspace_id"],
        service=row["service_id"],
        source=row["source"],
        versions=dict(sorted(zip(map(int, numbers), counts, strict=True))),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def _spec(row: asyncpg.Record) -> ServiceSpec:
    stored = _decode(row["definition"])
    return ServiceSpec(
        org=row["org_id"],
        workspace=row["workspace_id"],
        service=row["service_id"],
        source=row["source"],
        versions={
            number: VersionSpec(number, version.endpoints)
            for number, version in stored.versions.items()
        },
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )
