"""Migrating: once, whoever runs it and however many at a time, and never backwards."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator

import asyncpg
import msgspec
import pytest

from coatcheck import Service
from coatcheck.domain.errors import DatabaseUnavailable, SchemaMismatch
from coatcheck.store.limits import list_limits
from coatcheck.store.line import Line
from coatcheck.store.migrate import check_schema, migrate
from coatcheck.store.services import find, list_published, resolve_published
from coatcheck.store.sql import migrations
from tests.postgres_keeper import Databases, run
from tests.store.publishing import publish
from tests.store.rows import connected

STEPS = [name for name, _ in migrations()]


@pytest.fixture
async def empty_dsn(databases: Databases) -> AsyncIterator[str]:
    """The URL of a database that nobody has migrated."""
    name = f"empty_{secrets.token_hex(8)}"
    await run(databases.maintenance_dsn, f"CREATE DATABASE {name}")
    yield databases.dsn_of(name)
    await run(databases.maintenance_dsn, f"DROP DATABASE {name} WITH (FORCE)")


async def test_a_fresh_database_gets_every_step_in_order(empty_dsn: str) -> None:
    assert await migrate(empty_dsn) == STEPS
    async with connected(empty_dsn) as connection:
        assert await check_schema(connection) == STEPS[-1]


async def test_a_second_run_does_nothing(empty_dsn: str) -> None:
    await migrate(empty_dsn)
    assert await migrate(empty_dsn) == []


async def test_of_several_at_once_one_migrates(empty_dsn: str) -> None:
    applied = await asyncio.gather(*(migrate(empty_dsn) for _ in range(4)))
    assert sorted(applied, key=len) == [[], [], [], STEPS]


async def test_a_failing_step_leaves_nothing_behind(empty_dsn: str) -> None:
    async with connected(empty_dsn) as connection:
        await connection.execute("CREATE TABLE artifacts ()")  # in the way of the last step
        with pytest.raises(asyncpg.DuplicateTableError):
            await migrate(empty_dsn)
        assert await connection.fetchval("SELECT to_regclass('jobs')") is None
        assert await connection.fetchval("SELECT to_regclass('coatcheck_migrations')") is None


async def test_what_code_had_published_before_definitions_were_kept_stays_callable(
    empty_dsn: str,
) -> None:
    docs = Service("docs", 2)

    @docs.post("/count", concurrency=3, lane="bulk")
    async def count() -> None: ...

    (endpoint,) = docs.spec.endpoints
    known = msgspec.to_builtins(endpoint)
    del known["concurrency"]
    definition = {"versions": {"2": {"endpoints": [known]}}}
    at = next(i for i, name in enumerate(STEPS) if name.endswith("_published_endpoints"))
    async with connected(empty_dsn) as connection:
        for _, statements in migrations()[:at]:
            await connection.execute(statements)
        await connection.execute(
            "INSERT INTO services (org_id, service_id, workspace_id, source, definition)"
            " VALUES ('', 'docs', 'default', 'code', $1)",
            json.dumps(definition),
        )
        await connection.execute(
            "INSERT INTO concurrency_limits (org_id, scope, name, held_max, declared)"
            " VALUES ('*', 'endpoint', 'docs.v2.post__count', 3, true)"
        )
        for _, statements in migrations()[at:]:
            await connection.execute(statements)
    line = Line(empty_dsn, name="test migrated")
    try:
        (before,) = await list_published(line)
        assert (before.spec, before.unserved_since) == (endpoint, None)
        await resolve_published(line)
        assert [limit.held_max for limit in await list_limits(line, "acme")] == [3]
        assert (await find(line, [("acme", "docs")]))["acme", "docs"].endpoints == (endpoint,)
        boot = await publish(line, {"docs": [docs.spec]})
        (published,) = await list_published(line)
        assert (published.boots, published.published_at) == ((boot,), before.published_at)
    finally:
        await line.close()


async def test_a_database_from_the_future_is_refused(dsn: str) -> None:
    async with connected(dsn) as connection:
        await connection.execute("INSERT INTO coatcheck_migrations (name) VALUES ('9999_flying')")
        with pytest.raises(SchemaMismatch, match=r"9999_flying.*upgrade Coatcheck here"):
            await migrate(dsn)
        with pytest.raises(SchemaMismatch, match=r"9999_flying.*upgrade Coatcheck here"):
            await check_schema(connection)


async def test_an_empty_database_is_told_what_to_run(empty_dsn: str) -> None:
    async with connected(empty_dsn) as connection:
        with pytest.raises(SchemaMismatch, match="no Coatcheck schema; run `coatcheck migrate`"):
            await check_schema(connection)


async def test_an_older_database_is_told_what_it_lacks(dsn: str) -> None:
    async with connected(dsn) as connection:
        await connection.execute("DELETE FROM coatcheck_migrations WHERE name >= $1", STEPS[-2])
        with pytest.raises(
            SchemaMismatch, match=f"lacks 2 schema steps, from {STEPS[-2]}; run `coatcheck migrate`"
        ):
            await check_schema(connection)


async def test_a_server_that_is_away_is_said_to_be() -> None:
    with pytest.raises(DatabaseUnavailable):
        await migrate("postgresql://postgres@/postgres?host=/nowhere/at/all")
