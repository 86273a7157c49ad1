"""What the product's statements cost PostgreSQL, in numbers that no clock and no load changes.

A ``CostMeter`` counts for its own database and its own connections alone, so other tests on the
same server do not show. It counts

* statements, round trips and transactions by the messages of the server, which pass a proxy;
* write-ahead log by session (``pg_stat_get_backend_wal``), with the records of commits;
* rows and buffers by table, with its indexes and its TOAST. The catalog is not counted: a session
  reads it to fill its caches, and when it does depends on others;
* index entries by rows: a new version of a row that is not HOT has an entry in every index whose
  predicate it fulfils. Summarizing indexes (BRIN) have no entries. If a phase writes different
  kinds of rows to one table, some of them HOT, those count as the average of all.

Two things that others do reach into the database. What one transaction leaves behind is cleaned up
by the next one that sees it, but only if no older transaction runs on the server: wait with
``can_clean_up``. And after a checkpoint each page, and each sequence, adds a record
when it is first changed, with an image of the page if ``full_page_writes`` is on: measure several
times, without a pause.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, Self

from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.database import Database
from tests.db.edge_guard import AsyncpgConnection
from tests.db.proxy import Proxy, read
from tests.waiting import eventually_async

TOLERANCES: Final[Mapping[str, float]] = {
    "updated_hot": 0.05,
    "updated_not_hot": 0.5,
    "index_entries": 0.1,
    "wal_records": 0.05,
    "wal_bytes": 0.05,
    "buffers": 0.08,
}
"""By which part these may differ from what is declared, in either direction: they depend on where
in its page a row comes to lie, and so on whether an update of it stays there. All other numbers are
exact; so are those of a single job, of which a part is less than one."""

_HEADER_BYTES: Final = 5
_READ_ROWS = """
    SELECT t.relid::regclass::text AS table_name,
           t.n_tup_ins AS inserted, t.n_tup_upd AS updated, t.n_tup_hot_upd AS hot,
           t.n_tup_del AS deleted,
           b.heap_blks_hit + b.heap_blks_read
           + coalesce(b.idx_blks_hit + b.idx_blks_read, 0)
           + coalesce(b.toast_blks_hit + b.toast_blks_read, 0)
           + coalesce(b.tidx_blks_hit + b.tidx_blks_read, 0) AS buffers
    FROM pg_stat_user_tables AS t
    JOIN pg_statio_user_tables AS b ON b.relid = t.relid
"""
_READ_WAL = """
    SELECT array_agg(a.pid) AS sessions, sum(w.wal_records)::bigint AS records,
           sum(w.wal_bytes)::bigint AS bytes, sum(w.wal_fpi)::bigint AS page_images
    FROM pg_stat_activity AS a
    CROSS JOIN LATERAL pg_stat_get_backend_wal(a.pid) AS w
    WHERE a.datname = current_database() AND a.application_name LIKE 'coatcheck %'
"""
_PREDICATES = """
    SELECT i.indrelid::regclass::text AS table_name,
           array_agg(coalesce(pg_get_expr(i.indpred, i.indrelid), 'true')) AS predicates
    FROM pg_index AS i
    JOIN pg_stat_user_tables AS t ON t.relid = i.indrelid
    JOIN pg_class AS c ON c.oid = i.indexrelid
    JOIN pg_am AS a ON a.oid = c.relam
    WHERE a.amname <> 'brin'
    GROUP BY i.indrelid
"""
_FLUSH_LOG = "SELECT pg_logical_emit_message(false, '', '', flush => true)"
"""No row is marked as dead before the commit that deleted it is on disk."""
_FLUSH = "SELECT pg_backend_pid(), pg_stat_force_next_flush()"
"""A session adds what it has counted to the counts of all once a second at most, or when told."""

Work = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Cost:
    """What some work costs in all."""

    statements: int = 0
    round_trips: int = 0
    commits: int = 0
    """Transactions, with those that only read."""
    inserted: int = 0
    """Rows, as the next three."""
    updated_hot: int = 0
    """Without new index entries."""
    updated_not_hot: int = 0
    deleted: int = 0
    index_entries: int = 0
    """New ones."""
    wal_records: int = 0
    wal_bytes: int = 0
    buffers: int = 0
    """Pages that were looked at, in shared buffers or not; one that is looked at twice counts
    twice."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            *(getattr(self, each.name) + getattr(other, each.name) for each in fields(Cost))
        )

    @classmethod
    def undisturbed(cls, costs: Sequence[Self]) -> Self:
        """The cost of work that was done several times: the highest of each exact number and of the
        updates that stayed on their page, which an old snapshot of others prevents, and the lowest
        of the other numbers, to which such snapshots and checkpoints add."""

        def of(name: str) -> int:
            numbers = [getattr(each, name) for each in costs]
            adds_up = name in TOLERANCES and name != "updated_hot"
            return min(numbers) if adds_up else max(numbers)

        return cls(*(of(each.name) for each in fields(cls)))

    def differences(self, declared: Cost) -> dict[str, str]:
        """The numbers that are not as declared, by name: both numbers."""
        found = {}
        for each in fields(Cost):
            was, now = getattr(declared, each.name), getattr(self, each.name)
            if abs(now - was) > was * TOLERANCES.get(each.name, 0.0):
                found[each.name] = f"{was:,} declared, {now:,} measured"
        return found


class CountingProxy(Proxy):
    """Counts what the server answers."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.statements = self.round_trips = self.commits = 0

    async def answer(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        said = b""
        has_completed = False
        while piece := await read(server):
            said += piece
            while (end := _end_of_message(said)) is not None:
                kind, body, said = said[:1], said[_HEADER_BYTES:end], said[end:]
                if kind == b"C":  # CommandComplete
                    self.statements += 1
                    has_completed = not body.startswith(b"ROLLBACK")
                elif kind == b"Z":  # ReadyForQuery, with "I" outside a transaction
                    self.round_trips += 1
                    self.commits += has_completed and body == b"I"
                    has_completed = False
            if not client.is_closing():
                client.write(piece)


def _end_of_message(said: bytes) -> int | None:
    """Where the first message ends: its kind, its length without the kind, its body."""
    if len(said) < _HEADER_BYTES:
        return None
    end = 1 + int.from_bytes(said[1:_HEADER_BYTES])
    return end if end <= len(said) else None


@dataclass(frozen=True)
class _Counted:
    """What PostgreSQL has counted so far."""

    rows: Mapping[str, Counter[str]]
    """By table: inserted, updated, hot (of those), deleted, buffers."""
    wal: Counter[str]
    """records, bytes, page_images."""


class CostMeter:
    """Measures what is done on ``database``, whose connections pass ``proxy``.

    ``connection`` is for questions, and passes no proxy.
    """

    def __init__(
        self, proxy: CountingProxy, database: Database, connection: AsyncpgConnection
    ) -> None:
        self._proxy = proxy
        self._connection = connection
        self._sessions: Sequence[Connection] = [
            *database.submit,
            database.read,
            database.exchange,
            database.claim,
            database.heartbeat,
            # The pool lends the notifier's session: it has these settings.
            database.pooled("cost meter", server_settings=PINNED_PLANS),
        ]
        self._entries_per_row: dict[tuple[str, str], float] = {}
        self._last_transaction = 0
        self.page_images = 0
        """How many images of whole pages the log was given. They depend on when the last checkpoint
        was, and what was measured meanwhile is of no use."""

    async def learn(self, name: str, work: Work) -> None:
        """Do a phase of the work, and learn how many index entries the rows that it writes have.

        It does not measure, because to look at the rows cleans up what is left for later phases.
        """
        first = await self._next_transaction()
        await work()
        for row in await self._connection.fetch(_PREDICATES):
            table = row["table_name"]
            counts = ", ".join(f"count(*) FILTER (WHERE {each})" for each in row["predicates"])
            rows, *entries = await self._connection.fetchrow(
                f"SELECT count(*), {counts} FROM {table} WHERE xmin::text::bigint >= {first}"
            )
            if rows:
                self._entries_per_row[name, table] = sum(entries) / rows

    async def measure(self, name: str, work: Work) -> Cost:
        """The cost of a phase that ``learn`` knows."""
        before = await self._count()
        proxy = self._proxy
        statements, round_trips, commits = proxy.statements, proxy.round_trips, proxy.commits
        await work()
        sent = Cost(
            proxy.statements - statements, proxy.round_trips - round_trips, proxy.commits - commits
        )
        after = await self._count()
        self._last_transaction = await self._next_transaction()
        wal = after.wal - before.wal
        self.page_images += wal["page_images"]
        written = Cost(wal_records=wal["records"], wal_bytes=wal["bytes"])
        return sum(
            (
                self._cost_of_table(name, table, after.rows[table] - before.rows[table])
                for table in after.rows
            ),
            start=sent + written,
        )

    async def can_clean_up(self) -> None:
        """Wait until the next reader can clean up what the phases so far have left behind."""
        await self._connection.execute(_FLUSH_LOG)
        await eventually_async(self._is_last_transaction_oldest, "older transactions have ended")

    async def vacuum(self) -> None:
        """Clean up everything that the phases so far have left behind."""
        await self.can_clean_up()
        await self._connection.execute("VACUUM (INDEX_CLEANUP ON)")

    def _cost_of_table(self, name: str, table: str, rows: Counter[str]) -> Cost:
        not_hot = rows["updated"] - rows["hot"]
        entries = self._entries_per_row.get((name, table), 0.0)
        return Cost(
            inserted=rows["inserted"],
            updated_hot=rows["hot"],
            updated_not_hot=not_hot,
            deleted=rows["deleted"],
            index_entries=round((rows["inserted"] + not_hot) * entries),
            buffers=rows["buffers"],
        )

    async def _next_transaction(self) -> int:
        number: int = await self._connection.fetchval(
            "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
        )
        return number

    async def _is_last_transaction_oldest(self) -> bool:
        oldest: int = await self._connection.fetchval(
            "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
        )
        return oldest >= self._last_transaction

    async def _count(self) -> _Counted:
        await self._connection.fetch(_FLUSH)
        flushed = {(await each.fetch(_FLUSH))[0][0] for each in self._sessions}
        wal = await self._connection.fetchrow(_READ_WAL)
        assert flushed == set(wal["sessions"]), "a session of the product that the meter knows not"
        rows = await self._connection.fetch(_READ_ROWS)
        return _Counted(
            {row["table_name"]: Counter(dict(row.items()) | {"table_name": 0}) for row in rows},
            Counter(records=wal["records"], bytes=wal["bytes"], page_images=wal["page_images"]),
        )
