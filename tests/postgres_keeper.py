"""Keeps the PostgreSQL server that a test session's databases live on, for as long as it lasts.

Run as a program by whichever test first needs a database: `postgres_keeper.py SESSION_DIR`. It
serves an embedded server (or uses COATCHECK_TEST_DSN), makes the template database (migrated, and
guarded against illegal steps: db/edge_guard.py), writes `SESSION_DIR/databases.json`, and waits
for the session to end: the session holds a lock that the kernel releases however it ends, so a
crashed worker or a killed run leaves no server behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.db.embedded.cluster import Setting
from coatcheck.db.migrate import migrate
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


@dataclass(frozen=True)
class Databases:
    """Where tests create their databases, and which database they copy."""

    maintenance_dsn: str
    template: str

    def dsn_of(self, database: str) -> str:
        return urlunsplit(urlsplit(self.maintenance_dsn)._replace(path=f"/{database}"))

    @contextlib.asynccontextmanager
    async def fresh(self) -> AsyncIterator[str]:
        """The URL of a new, migrated database, which is dropped afterwards."""
        name = f"test_{secrets.token_hex(8)}"
        # Its files as they are: by way of the log, as usual, each page is written twice.
        await run(
            self.maintenance_dsn,
            f"CREATE DATABASE {name} TEMPLATE {self.template} STRATEGY FILE_COPY",
        )
        yield self.dsn_of(name)
        await run(self.maintenance_dsn, f"DROP DATABASE {name} WITH (FORCE)")

    @contextlib.contextmanager
    def shared(self) -> Iterator[str]:
        """As ``fresh``, for a fixture that outlives the event loop of a test."""
        with asyncio.Runner() as runner:
            making = self.fresh()
            yield runner.run(making.__aenter__())
            runner.run(making.__aexit__(None, None, None))

    @classmethod
    def read(cls, session_dir: Path) -> Databases:
        return cls(**json.loads((session_dir / "databases.json").read_text()))

    def publish(self, session_dir: Path) -> None:
        partial = session_dir / "databases.json.partial"
        partial.write_text(json.dumps(asdict(self)))
        partial.rename(session_dir / "databases.json")


def main(session_dir: Path) -> None:
    with (session_dir / "keeper.lock").open("w") as keeper_lock:
        fcntl.flock(keeper_lock, fcntl.LOCK_EX)
        try:
            with server(session_dir) as maintenance_dsn:
                databases = Databases(maintenance_dsn, f"template_{secrets.token_hex(6)}")
                asyncio.run(create_template(databases))
                try:
                    databases.publish(session_dir)
                    wait_for_the_end_of(session_dir)
                finally:
                    asyncio.run(drop_template(databases))
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


async def create_template(databases: Databases) -> None:
    await run(databases.maintenance_dsn, f"CREATE DATABASE {databases.template}")
    await migrate(databases.dsn_of(databases.template))
    await edge_guard.install(databases.dsn_of(databases.template))


async def drop_template(databases: Databases) -> None:
    await run(databases.maintenance_dsn, f"DROP DATABASE {databases.template} WITH (FORCE)")


async def run(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
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
