"""The databases of tests: copies of a migrated template, each of which serves several tests.

A copy has 600 files, and costs the server 30 ms of CPU to make and to drop. So a test gives its
database back, and it is emptied for the next one; unless the test changed more than rows. An event
trigger counts the changes of the schema, and a database with statistics of its tables has other
plans than a new one: these are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import secrets
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

USES_MAX = 50
"""To be emptied leaves dead rows in the catalogue."""
SESSION_END_MILLISECONDS_MAX = 10_000

_COUNT_CHANGES = """
    CREATE SCHEMA of_tests;
    CREATE SEQUENCE of_tests.changes;
    CREATE FUNCTION of_tests.count_change() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        PERFORM nextval('of_tests.changes');
    END $$;
    CREATE EVENT TRIGGER of_tests ON ddl_command_end EXECUTE FUNCTION of_tests.count_change();
"""

_TABLES_WITH_ROWS = """
    SELECT c.oid::regclass::text
    FROM pg_class AS c
    WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
      AND pg_relation_size(c.oid) > 0
"""

_IS_AS_MADE = """
    SELECT NOT (SELECT c.is_called FROM of_tests.changes AS c)
       AND NOT EXISTS (SELECT FROM pg_statistic AS s WHERE s.starelid >= 16384)
       AND NOT EXISTS (
           SELECT FROM pg_class AS c
           WHERE c.oid >= 16384 AND c.relkind = 'r' AND c.reltuples >= 0
       )
       AND NOT EXISTS (
           SELECT FROM pg_db_role_setting AS s JOIN pg_database AS d ON d.oid = s.setdatabase
           WHERE d.datname = current_database()
       )
       AND (SELECT d.datconnlimit FROM pg_database AS d WHERE d.datname = current_database()) = -1
"""

_END_SESSIONS = """
    SELECT bool_and(pg_terminate_backend(a.pid, $1))
    FROM pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
"""


@dataclass(frozen=True)
class Databases:
    """Where tests create their databases, and which database they copy."""

    maintenance_dsn: str
    template: str
    prefix: str
    """What the names of all databases of the session begin with."""
    empty: str = ""
    """The statement that makes the rows of a copy those of the template."""

    @classmethod
    def named(cls, maintenance_dsn: str) -> Databases:
        token = secrets.token_hex(6)
        return cls(maintenance_dsn, f"template_{token}", f"test_{token}_")

    def dsn_of(self, database: str) -> str:
        return urlunsplit(urlsplit(self.maintenance_dsn)._replace(path=f"/{database}"))

    @contextlib.asynccontextmanager
    async def fresh(self) -> AsyncIterator[str]:
        """The URL of a migrated database without rows. If the test fails, it is dropped."""
        pool = _pool(self)
        name = await pool.take()
        try:
            yield self.dsn_of(name)
        except BaseException:
            await pool.drop(name)
            raise
        await pool.give_back(name)

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


async def run(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def watch_template(dsn: str) -> str:
    """Count the changes of the template's copies. Returns the statement that empties a copy."""
    connection = await asyncpg.connect(dsn)
    try:
        kept = {}
        for (table,) in await connection.fetch(_TABLES_WITH_ROWS):
            kept[table] = await connection.fetchrow(
                f"SELECT jsonb_agg(to_jsonb(t))::text, {_digest('t')} FROM {table} AS t"
            )
        await connection.execute(_COUNT_CHANGES)
        return _empty({table: (rows, digest) for table, (rows, digest) in kept.items()})
    finally:
        await connection.close()


def _digest(alias: str) -> str:
    return f"md5(coalesce(string_agg({alias}::text, ' ' ORDER BY {alias}::text), ''))"


def _empty(kept: dict[str, tuple[str, str]]) -> str:
    """Remove all rows but those that the template has.

    Truncating makes new files for a table and all of its indexes, so a table of one page is deleted
    from; but dead rows of jobs would be counted by the tests of its plans.
    """
    names = ", ".join(f"'{table}'" for table in kept) or "''"
    restored = "".join(
        f"""
        IF (SELECT {_digest("t")} FROM {table} AS t) <> '{digest}' THEN
            TRUNCATE {table};
            INSERT INTO {table} OVERRIDING SYSTEM VALUE
            SELECT * FROM jsonb_populate_recordset(NULL::{table}, {_literal(rows)});
        END IF;"""
        for table, (rows, digest) in kept.items()
    )
    return f"""
        DO $empty$
        DECLARE
            filled text;
            used regclass;
        BEGIN
            FOR filled IN
                SELECT t.name FROM ({_TABLES_WITH_ROWS}) AS t (name) WHERE t.name NOT IN ({names})
            LOOP
                IF filled IN ('jobs', 'queue') OR pg_relation_size(filled::regclass) > 8192 THEN
                    EXECUTE 'TRUNCATE ' || filled;
                ELSE
                    EXECUTE 'DELETE FROM ' || filled;
                END IF;
            END LOOP;{restored}
            FOR used IN SELECT c.oid FROM pg_class AS c
                WHERE c.relkind = 'S' AND c.relnamespace = 'public'::regnamespace
            LOOP
                EXECUTE format('SELECT setval(%L, 1, false)', used);
            END LOOP;
            PERFORM pg_stat_reset();
        END $empty$
    """


def _literal(text: str) -> str:
    tag = f"$_{hashlib.sha256(text.encode()).hexdigest()[:8]}$"
    return tag + text + tag


class _Pool:
    """The databases of one pytest process, made by a thread with an event loop of its own.

    Event loops of tests end, and its connection stays: each new one costs the server 3 ms.
    """

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._uses: dict[str, int] = {}
        self._idle: list[str] = []
        self._turn = asyncio.Lock()
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="databases", daemon=True).start()

    async def take(self) -> str:
        return await self._on_thread(self._take())

    async def give_back(self, name: str) -> None:
        await self._on_thread(self._give_back(name))

    async def drop(self, name: str) -> None:
        await self._on_thread(self._drop(name))

    async def _on_thread(self, doing: Coroutine[Any, Any, Any]) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(doing, self._loop))

    async def _take(self) -> str:
        if self._idle:
            return self._idle.pop()
        name = self._databases.prefix + secrets.token_hex(6)
        # Its files as they are: by way of the log, as usual, each page is written twice.
        await self._run(
            f"CREATE DATABASE {name} TEMPLATE {self._databases.template} STRATEGY FILE_COPY"
        )
        self._uses[name] = 0
        return name

    async def _give_back(self, name: str) -> None:
        self._uses[name] += 1
        if self._uses[name] < USES_MAX and await self._emptied(name):
            self._idle.append(name)
        else:
            await self._drop(name)

    async def _emptied(self, name: str) -> bool:
        connection = await asyncpg.connect(self._databases.dsn_of(name))
        try:
            if await connection.fetchval(_END_SESSIONS, SESSION_END_MILLISECONDS_MAX) is False:
                return False
            if not await connection.fetchval(_IS_AS_MADE):
                return False
            await connection.execute(self._databases.empty)
            return True
        finally:
            await connection.close()

    async def _drop(self, name: str) -> None:
        del self._uses[name]
        await self._run(f"DROP DATABASE {name} WITH (FORCE)")

    async def _run(self, statement: str) -> None:
        async with self._turn:
            if self._connection is None or self._connection.is_closed():
                self._connection = await asyncpg.connect(self._databases.maintenance_dsn)
            await self._connection.execute(statement)


@cache
def _pool(databases: Databases) -> _Pool:
    return _Pool(databases)
