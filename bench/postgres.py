"""The one PostgreSQL of a run, and a fresh database for every measurement."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from bench.job_cost import ServerReading
from bench.process_tree import Tree
from coatcheck.db.embedded import EmbeddedPostgres

# Settings that decide the speed and safety of a commit; the report shows the server's values.
REPORTED_SETTINGS = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
    "max_wal_size",
    "max_connections",
    "jit",
)
WORKER_ROLE = "bench_worker"
"""Measured workers log in with it, so that the server can tell their sessions from the client's."""
_SESSIONS = """
SELECT coalesce(array_agg(pid) FILTER (WHERE usename = $1), '{}') AS serving,
       coalesce(array_agg(pid) FILTER (WHERE usename <> $1), '{}') AS watching,
       pg_current_wal_insert_lsn() - '0/0'::pg_lsn AS wal_bytes,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS transactions
FROM pg_stat_activity
WHERE backend_type = 'client backend'
"""
"""Transactions by their numbers, which those that write have. The statistics of commits would be up
to a second old, and those of an idle session ten."""


class Postgres:
    """Coatcheck's embedded server, with its own settings, shared by all contenders in turn."""

    def __init__(self, folder: Path) -> None:
        self._server = EmbeddedPostgres(folder)
        self._databases = 0

    async def start(self) -> None:
        await asyncio.to_thread(self._server.start)
        await self._administer(f"CREATE ROLE {WORKER_ROLE} LOGIN SUPERUSER")

    async def stop(self) -> None:
        # Nothing here is kept, so the final checkpoint would be wasted time.
        await asyncio.to_thread(self._server.stop, "immediate")

    async def create_template(self, name: str, *, source: str | None = None) -> str:
        """A template database to fill once and copy often; returns its DSN.

        It is empty, or a copy of the template `source`.
        """
        origin = "template1" if source is None else template_name(source)
        await self._copy(origin, template_name(name))
        return self._server.dsn_of(template_name(name))

    async def create_database(self, template: str) -> "Database":
        """A fresh copy of a template."""
        self._databases += 1
        database = f"{template}_{self._databases}"
        await self._copy(template_name(template), database)
        # Every measurement starts right after a checkpoint, so that none pays for another's.
        await self._administer("CHECKPOINT")
        return Database(self, database, self._server.dsn_of(database))

    async def _copy(self, origin: str, database: str) -> None:
        await self._administer(
            f'CREATE DATABASE "{database}" TEMPLATE "{origin}" STRATEGY file_copy'
        )

    async def drop_database(self, database: str) -> None:
        """Waits for clients to disconnect; then disconnects the others."""
        try:
            await self._administer(f'DROP DATABASE "{database}"')
        except asyncpg.ObjectInUseError:
            await self._administer(f'DROP DATABASE "{database}" WITH (FORCE)')

    async def settings(self) -> dict[str, str]:
        connection = await asyncpg.connect(self._server.dsn)
        try:
            return {
                name: await connection.fetchval("SELECT current_setting($1)", name)
                for name in REPORTED_SETTINGS
            }
        finally:
            await connection.close()

    @asynccontextmanager
    async def meter(self) -> AsyncIterator["PostgresMeter"]:
        pid = self._server.pid
        assert pid is not None, "the server is not running"
        connection = await asyncpg.connect(self._server.dsn)
        try:
            meter = PostgresMeter(pid, connection)
            await meter.read()  # which prepares the statement
            yield meter
        finally:
            await connection.close()

    async def _administer(self, statement: str) -> None:
        connection = await asyncpg.connect(self._server.dsn)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


def template_name(name: str) -> str:
    return f"{name}_template"


class Database:
    """A contender's database for one measurement."""

    def __init__(self, server: Postgres, name: str, address: str) -> None:
        self._server = server
        self._name = name
        self.address = address

    async def settle(self) -> None:
        """Updates the planner's statistics after a load, as autovacuum would later."""
        connection = await asyncpg.connect(self.address)
        try:
            await connection.execute("VACUUM ANALYZE")
        finally:
            await connection.close()

    @property
    def worker_address(self) -> str:
        """The same database, for workers whose sessions are measured."""
        parts = urlsplit(self.address)
        return urlunsplit(parts._replace(netloc=f"{WORKER_ROLE}@"))

    def meter(self) -> AbstractAsyncContextManager["PostgresMeter"]:
        return self._server.meter()

    async def remove(self) -> None:
        await self._server.drop_database(self._name)


class PostgresMeter:
    """Reads the server's processes and counters, over a connection that is opened before."""

    def __init__(self, postmaster: int, connection: asyncpg.Connection) -> None:
        self._postmaster = postmaster
        self._connection = connection

    async def read(self) -> ServerReading:
        (row,) = await self._connection.fetch(_SESSIONS, WORKER_ROLE)
        return ServerReading(
            Tree.read([self._postmaster]),
            serving=frozenset(row["serving"]),
            watching=frozenset(row["watching"]),
            wal_bytes=int(row["wal_bytes"]),
            transactions=row["transactions"],
        )
