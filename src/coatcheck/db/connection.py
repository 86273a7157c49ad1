"""A connection that reconnects by itself, for statements one after another.

A pool's turns cost more than our hot statements. Each component that is in a hurry (the submit
batcher, a worker's exchange, the heartbeat) has a connection for its life; the others share a pool
(``pool.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import asyncpg

from coatcheck.db.errors import translate

Result = TypeVar("Result")
if TYPE_CHECKING:
    RawConnection = asyncpg.Connection[asyncpg.Record]
else:
    RawConnection = asyncpg.Connection

PINNED_PLANS: Mapping[str, str] = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}
"""For hot statements: each has one right plan, through its index, whatever the statistics say.
Unpinned, groups of 1,000 flip to a sequential scan of the history (docs/adr/0004)."""

_SET = (
    "SELECT set_config(name, value, false) FROM unnest($1::text[], $2::text[]) AS s (name, value)"
)

_CONNECT_SECONDS_MAX = 10.0
STATEMENT_SECONDS_MAX = 30.0
IDLE_IN_TRANSACTION_SECONDS_MAX = 30.0
"""Two statements of a transaction follow each other within a moment. A process that is frozen
between them (a laptop that sleeps) would keep its locks, and everybody else would wait."""
_STATEMENT_CHARACTERS_CACHED_MAX = 64 * 1024
"""The driver does not cache longer statements: planning a claim costs ten times its execution."""
_STATEMENTS_CACHED_MAX = 500
"""A session of the pool runs the statements of every component."""
_CLOSE_SECONDS_MAX = 2.0

ARRAY_TYPES: Final = {
    199: ("json", 114),
    1000: ("bool", 16),
    1001: ("bytea", 17),
    1005: ("int2", 21),
    1007: ("int4", 23),
    1016: ("int8", 20),
    1021: ("float4", 700),
    1022: ("float8", 701),
    1182: ("date", 1082),
    1185: ("timestamptz", 1184),
    1187: ("interval", 1186),
    1231: ("numeric", 1700),
    2951: ("uuid", 2950),
    3807: ("jsonb", 3802),
}
"""PostgreSQL's own array types by oid: name and oid of the element. They are the same in every
database of every version."""
_NO_STATEMENT: Final = SimpleNamespace(name="none")


class DriverConnection(RawConnection):
    """The driver's connection, which need not ask the server about PostgreSQL's own array types.

    The driver knows the elements but not the arrays, and asks about each that it meets, once per
    connection. That query costs the server 10 ms, more than most connections are opened for.
    """

    async def _introspect_types(
        self, typeoids: Collection[int], timeout: float | None
    ) -> tuple[list[Any], Any]:
        types = [
            {
                "oid": oid,
                "ns": "pg_catalog",
                "name": f"_{ARRAY_TYPES[oid][0]}",
                "kind": b"b",
                "elemtype": ARRAY_TYPES[oid][1],
                "elemdelim": ",",
                "range_subtype": None,
                "attrtypoids": None,
                "basetype": None,
            }
            for oid in typeoids
            if oid in ARRAY_TYPES
        ]
        if len(types) == len(typeoids):
            return types, _NO_STATEMENT
        return await super()._introspect_types(typeoids, timeout)  # type: ignore[misc, no-any-return]


class Connection:
    """A connection that is opened on first use, and again after it broke."""

    def __init__(
        self,
        dsn: str,
        *,
        name: str,
        server_settings: Mapping[str, str] | None = None,
        statement_seconds_max: float = STATEMENT_SECONDS_MAX,
    ) -> None:
        self.database_url = dsn
        self._name = name
        self._settings = {
            "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_SECONDS_MAX * 1e3:.0f}",
            **(server_settings or {}),
        }
        self._statement_seconds_max = statement_seconds_max
        self._connection: RawConnection | None = None
        self._turn = asyncio.Lock()

    async def fetch(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run one statement in its own transaction."""

        async def statement(connection: RawConnection) -> list[asyncpg.Record]:
            return await connection.fetch(query, *arguments)

        return await self.run(statement)

    async def run(self, work: Callable[[RawConnection], Awaitable[Result]]) -> Result:
        """Run ``work`` with the connection. Driver errors of availability become Coatcheck's."""
        async with self._turn:
            connection = await self._connected()
            try:
                return await work(connection)
            except Exception as error:
                known = translate(error, in_flight=True)
                if known is None:
                    raise
                self._drop()
                raise known from error
            except BaseException:
                # Cancelled half-way: the protocol may be in the middle of a message.
                self._drop()
                raise

    async def close(self) -> None:
        async with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                await close_gently(connection)

    async def _connected(self) -> RawConnection:
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        try:
            self._connection = await open_connection(
                self.database_url,
                name=self._name,
                settings=self._settings,
                statement_seconds_max=self._statement_seconds_max,
            )
        except Exception as error:
            known = translate(error, in_flight=False)
            if known is None:
                raise
            raise known from error
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


async def open_connection(
    dsn: str, *, name: str, settings: Mapping[str, str], statement_seconds_max: float | None
) -> RawConnection:
    """Connect, with these settings of the session. Raises the driver's errors."""
    connection: RawConnection = await asyncpg.connect(
        dsn,
        timeout=_CONNECT_SECONDS_MAX,
        command_timeout=statement_seconds_max,
        server_settings={"application_name": f"coatcheck {name}"},
        statement_cache_size=_STATEMENTS_CACHED_MAX,
        max_cacheable_statement_size=_STATEMENT_CHARACTERS_CACHED_MAX,
        connection_class=DriverConnection,
    )
    try:
        # Not at login: PgBouncer refuses startup settings that it does not know, or, if told to
        # ignore them, drops them.
        await configure(connection, settings)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def configure(connection: RawConnection, settings: Mapping[str, str | None]) -> None:
    """Change settings of the session. None stands for the server's default."""
    await connection.fetch(_SET, [*settings], [*settings.values()])


async def close_gently(connection: RawConnection) -> None:
    """Say goodbye to the server, but do not wait long for it."""
    try:
        await connection.close(timeout=_CLOSE_SECONDS_MAX)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()
