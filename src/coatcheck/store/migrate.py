"""Brings a database to this version's schema, once, whoever runs it and however many at a time."""

from __future__ import annotations

import asyncpg

from coatcheck.domain.errors import SchemaMismatch
from coatcheck.store.faults import translated
from coatcheck.store.line import Connection
from coatcheck.store.sql import migrations

_LOCK = 0x436F_6174_4D69  # "CoatMi"
_POSTGRES_VERSION_MIN = 180_000

_LEDGER = """
CREATE TABLE IF NOT EXISTS coatcheck_migrations (
    name       text PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""


async def migrate(dsn: str) -> list[str]:
    """Apply the steps that the database lacks, in one transaction. Returns their names."""
    async with translated(in_flight=False):
        # One transaction and nothing prepared by name: also through a pooler in transaction mode.
        connection = await asyncpg.connect(dsn, timeout=10, statement_cache_size=0)
    try:
        async with translated(), connection.transaction():
            if int(await connection.fetchval("SHOW server_version_num")) < _POSTGRES_VERSION_MIN:
                raise SchemaMismatch("PostgreSQL 18 or later is needed")
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            await connection.execute(_LEDGER)
            applied = await _applied(connection)
            _refuse_unknown(applied)
            missing = [step for step in migrations() if step[0] not in applied]
            for name, statements in missing:
                await connection.execute(statements)
                await connection.execute(
                    "INSERT INTO coatcheck_migrations (name) VALUES ($1)", name
                )
            return [name for name, _ in missing]
    finally:
        await connection.close()


async def check_schema(connection: Connection) -> str:
    """The name of the newest step, if the database is exactly at this version's schema."""
    if await connection.fetchval("SELECT to_regclass('coatcheck_migrations')") is None:
        raise SchemaMismatch("the database has no Coatcheck schema; run `coatcheck migrate`")
    applied = await _applied(connection)
    _refuse_unknown(applied)
    missing = [name for name, _ in migrations() if name not in applied]
    if missing:
        raise SchemaMismatch(
            f"the database lacks {len(missing)} schema steps, from {missing[0]}; "
            "run `coatcheck migrate`"
        )
    return max(applied)


async def _applied(connection: Connection) -> set[str]:
    rows = await connection.fetch("SELECT name FROM coatcheck_migrations")
    return {row["name"] for row in rows}


def _refuse_unknown(applied: set[str]) -> None:
    unknown = applied - {name for name, _ in migrations()}
    if unknown:
        raise SchemaMismatch(
            f"the database has schema step {max(unknown)}, which this version does not know; "
            "upgrade Coatcheck here"
        )
