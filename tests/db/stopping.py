"""Stopping a statement between its snapshot and its first lock, where it would wait for nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from coatcheck.db.connection import Connection
from tests.db.edge_guard import AsyncpgConnection

_KEY: Final = 57_005


async def let_readers_stop(connection: AsyncpgConnection, table: str) -> None:
    """From now on a statement that reads a row of ``table`` waits there while ``stopping`` lasts.
    The statements of a test must not lock or change the table by ctid."""
    await connection.execute(
        f"""
        ALTER TABLE {table} RENAME TO {table}_itself;
        CREATE FUNCTION wait_at_{table}() RETURNS boolean LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_advisory_xact_lock_shared({_KEY});
            RETURN true;
        END $$;
        CREATE VIEW {table} AS SELECT * FROM {table}_itself WHERE wait_at_{table}();
        """
    )


@asynccontextmanager
async def stopping(connection: AsyncpgConnection | Connection) -> AsyncIterator[None]:
    """Stop readers on other connections than this one."""
    await connection.fetch(f"SELECT pg_advisory_lock({_KEY})")
    try:
        yield
    finally:
        await connection.fetch(f"SELECT pg_advisory_unlock({_KEY})")
