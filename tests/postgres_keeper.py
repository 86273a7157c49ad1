"""Keeps the PostgreSQL server that a test session's databases live on, for as long as it lasts.

Run as a program by whichever test first needs a database: `postgres_keeper.py SESSION_DIR`. It
serves an embedded server (or uses COATCHECK_TEST_DSN), makes the template database (migrated, and
guarded against illegal steps: db/edge_guard.py; databases.py copies it), writes
`SESSION_DIR/databases.json`, and waits for the session to end: the session holds a lock that the
kernel releases however it ends, so a crashed worker or a killed run leaves no server behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import asyncpg

from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.db.embedded.cluster import Setting
from coatcheck.db.migrate import migrate
from tests.databases import Databases, run, watch_template
from tests.db import edge_guard

# Nothing on this server outlives the session, so it need not survive a power cut.
DISPOSABLE: dict[str, Setting] = {
    "fsync": False,
    "full_page_writes": False,
    "synchronous_commit": False,
    "max_connections": 300,
    "shared_buffers": "128MB",
    "max_wal_size": "512MB",
}


def main(session_dir: Path) -> None:
    with (session_dir / "keeper.lock").open("w") as keeper_lock:
        fcntl.flock(keeper_lock, fcntl.LOCK_EX)
        try:
            with server(session_dir) as maintenance_dsn:
                databases = Databases.named(maintenance_dsn)
                databases = replace(databases, empty=asyncio.run(create_template(databases)))
                try:
                    databases.publish(session_dir)
                    wait_for_the_end_of(session_dir)
                finally:
                    asyncio.run(drop_all(databases))
        finally:
            if session_has_ended(session_dir):
                shutil.rmtree(session_dir)


@contextlib.contextmanager
def server(session_dir: Path) -> Iterator[str]:
    given = os.environ.get("COATCHECK_TEST_DSN")
    if given:
        yield given
        return
    with EmbeddedPostgres(session_dir / "postgres", settings=DISPOSABLE) as embedded:
        yield embedded.dsn_of("postgres")


async def create_template(databases: Databases) -> str:
    """Make the template. Returns the statement that empties a copy of it."""
    await run(databases.maintenance_dsn, f"CREATE DATABASE {databases.template}")
    template = databases.dsn_of(databases.template)
    await migrate(template)
    await edge_guard.install(template)
    return await watch_template(template)


async def drop_all(databases: Databases) -> None:
    """Drop the template, and the copies that are kept for tests that did not come."""
    connection = await asyncpg.connect(databases.maintenance_dsn)
    try:
        rows = await connection.fetch(
            "SELECT datname FROM pg_database WHERE datname = $1 OR starts_with(datname, $2)",
            databases.template,
            databases.prefix,
        )
        for (name,) in rows:
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await connection.close()


def wait_for_the_end_of(session_dir: Path) -> None:
    with (session_dir / "session.lock").open() as session_lock:
        fcntl.flock(session_lock, fcntl.LOCK_SH)


def session_has_ended(session_dir: Path) -> bool:
    with (session_dir / "session.lock").open() as session_lock:
        try:
            fcntl.flock(session_lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


if __name__ == "__main__":
    main(Path(sys.argv[1]))
