"""Migrating: once, whoever runs it and however many at a time, and never backwards."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

import asyncpg
import pytest

from coatcheck.domain.errors import DatabaseUnavailable, SchemaMismatch
from coatcheck.store.migrate import check_schema, migrate
from coatcheck.store.sql import migrations
from tests.postgres_keeper import Databases, run
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
