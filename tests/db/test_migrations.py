"""Migrating: once, whoever runs it and however many at a time, and never backwards."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

import asyncpg
import pytest

from coatcheck.db.migrate import (
    SchemaPackage,
    SchemaStep,
    check_schema,
    installed_packages,
    migrate,
)
from coatcheck.domain.errors import (
    DatabaseBeforeFirstRelease,
    DatabaseUnavailable,
    SchemaMismatch,
)
from tests.databases import Databases, run
from tests.db.rows import connected

CORE, *PRODUCTS = installed_packages()
STEPS = [str(step) for package in installed_packages() for step in package.steps]

OF_A_DEVELOPMENT_VERSION = """
CREATE TABLE coatcheck_migrations (
    name       text PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO coatcheck_migrations (name) VALUES ('0001_jobs'), ('0002_workers');
CREATE TABLE jobs (org_id text, id uuid, PRIMARY KEY (org_id, id));
INSERT INTO jobs VALUES ('acme', gen_random_uuid());
"""
"""What versions before 0.1.0 wrote down of their steps, and enough of a schema to lose a job."""


def package(name: str, *statements: str) -> SchemaPackage:
    steps = [SchemaStep(name, f"{at:04}_step", each) for at, each in enumerate(statements, 1)]
    return SchemaPackage(name, tuple(steps))


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
        assert await check_schema(connection) == CORE.steps[-1].name


def test_the_cores_steps_come_first_and_then_each_products() -> None:
    assert CORE.name == "core"
    assert [each.name for each in PRODUCTS] == sorted(each.name for each in PRODUCTS)
    assert {each.name for each in PRODUCTS} >= {"batches", "llm", "speech"}


async def test_a_product_that_is_installed_later_gets_its_tables(empty_dsn: str) -> None:
    await migrate(empty_dsn)
    packages = [CORE, *PRODUCTS, package("echo", "CREATE TABLE echoes (id integer)")]
    async with connected(empty_dsn) as connection:
        with pytest.raises(SchemaMismatch, match="lacks 1 schema step, from echo/0001_step"):
            await check_schema(connection, packages)
        assert await migrate(empty_dsn, packages) == ["echo/0001_step"]
        assert await check_schema(connection, packages) == CORE.steps[-1].name
        assert await connection.fetchval("SELECT to_regclass('echoes')") is not None


async def test_the_tables_of_a_product_that_is_not_installed_are_in_nobodys_way(
    empty_dsn: str,
) -> None:
    await migrate(empty_dsn, [CORE, package("echo", "CREATE TABLE echoes (id integer)")])
    async with connected(empty_dsn) as connection:
        assert await check_schema(connection, [CORE]) == CORE.steps[-1].name


async def test_a_database_of_a_development_version_is_refused_and_left_as_it_is(
    empty_dsn: str,
) -> None:
    async with connected(empty_dsn) as connection:
        await connection.execute(OF_A_DEVELOPMENT_VERSION)
        with pytest.raises(DatabaseBeforeFirstRelease, match=r"before 0\.1\.0.*nothing in it was"):
            await migrate(empty_dsn)
        with pytest.raises(DatabaseBeforeFirstRelease, match="Create an empty database"):
            await check_schema(connection)
        tables = await connection.fetch(
            "SELECT relname FROM pg_class"
            " WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY relname"
        )
        assert [row[0] for row in tables] == ["coatcheck_migrations", "jobs"]
        assert await connection.fetchval("SELECT count(*) FROM jobs") == 1


async def test_a_second_run_does_nothing(empty_dsn: str) -> None:
    await migrate(empty_dsn)
    assert await migrate(empty_dsn) == []


async def test_of_several_at_once_one_migrates(empty_dsn: str) -> None:
    applied = await asyncio.gather(*(migrate(empty_dsn) for _ in range(4)))
    assert sorted(applied, key=len) == [[], [], [], STEPS]


async def test_a_failing_step_leaves_nothing_behind(empty_dsn: str) -> None:
    async with connected(empty_dsn) as connection:
        await connection.execute("CREATE TABLE voices ()")  # in the way of the last step
        with pytest.raises(asyncpg.DuplicateTableError):
            await migrate(empty_dsn)
        assert await connection.fetchval("SELECT to_regclass('jobs')") is None
        assert await connection.fetchval("SELECT to_regclass('schema_steps')") is None


async def test_a_database_from_the_future_is_refused(dsn: str) -> None:
    async with connected(dsn) as connection:
        await connection.execute(
            "INSERT INTO schema_steps (package, step) VALUES ('core', '9999_flying')"
        )
        with pytest.raises(SchemaMismatch, match=r"core/9999_flying.*upgrade Coatcheck here"):
            await migrate(dsn)
        with pytest.raises(SchemaMismatch, match=r"core/9999_flying.*upgrade Coatcheck here"):
            await check_schema(connection)


async def test_an_empty_database_is_told_what_to_run(empty_dsn: str) -> None:
    async with connected(empty_dsn) as connection:
        with pytest.raises(SchemaMismatch, match="no Coatcheck schema; run `coatcheck migrate`"):
            await check_schema(connection)


async def test_an_older_database_is_told_what_it_lacks(dsn: str) -> None:
    async with connected(dsn) as connection:
        last = CORE.steps[-1].name
        await connection.execute(
            "DELETE FROM schema_steps WHERE (package, step) IN (('core', $1), ('speech', $2))",
            last,
            "0001_speech",
        )
        with pytest.raises(
            SchemaMismatch, match=f"lacks 2 schema steps, from core/{last}; run `coatcheck migrate`"
        ):
            await check_schema(connection)


async def test_a_server_that_is_away_is_said_to_be() -> None:
    with pytest.raises(DatabaseUnavailable):
        await migrate("postgresql://postgres@/postgres?host=/nowhere/at/all")
