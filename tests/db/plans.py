"""The plan that PostgreSQL really runs for one of our statements, and what it read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from coatcheck.db.connection import Connection
from coatcheck.db.queries import Queries
from tests.db.edge_guard import AsyncpgConnection


@dataclass(frozen=True)
class Plan:
    """One execution of a statement, as EXPLAIN (ANALYZE, BUFFERS) tells it."""

    root: dict[str, Any]

    @property
    def buffers(self) -> int:
        """Pages that were looked at, in the cache or not."""
        return int(self.root["Shared Hit Blocks"] + self.root["Shared Read Blocks"])

    def scans(self, table: str) -> list[dict[str, Any]]:
        return [node for node in self._nodes() if node.get("Relation Name") == table]

    def indexes(self, *tables: str) -> set[str]:
        """The indexes by which tables were read."""
        return {
            node["Index Name"]
            for table in tables
            for node in self.scans(table)
            if "Index Name" in node
        }

    def sequential_scans(self, table: str) -> int:
        return sum(node["Node Type"] == "Seq Scan" for node in self.scans(table))

    def rows_read(self, table: str) -> float:
        """Rows that scans of a table gave, or read and threw away."""
        return float(
            sum(
                node["Actual Loops"]
                * (
                    node["Actual Rows"]
                    + node.get("Rows Removed by Filter", 0)
                    + node.get("Rows Removed by Index Recheck", 0)
                )
                for node in self.scans(table)
                if node["Node Type"].endswith("Scan")
            )
        )

    def _nodes(self) -> Iterator[dict[str, Any]]:
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.get("Plans", [])


async def explain(connection: AsyncpgConnection, statement: str, *arguments: Any) -> Plan:
    """Run a statement, as a prepared one and undone after, and see how it was done.

    Prepared, because what a worker sends is: under the worker's settings it has a generic plan.
    """
    undone = connection.transaction()
    await undone.start()
    try:
        await connection.execute(f"PREPARE explained AS {statement}")
        values = f"({', '.join(map(_literal, arguments))})" if arguments else ""
        told = await connection.fetchval(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE explained {values}"
        )
        return Plan(json.loads(told)[0]["Plan"])
    finally:
        await undone.rollback()
        await connection.execute("DEALLOCATE ALL")
        await connection.reload_schema_state()  # the driver's own statements went with it


async def explain_query(
    connection: AsyncpgConnection, queries: Queries, name: str, **arguments: Any
) -> Plan:
    """Run a named statement, undone after, and see how it was done."""
    text, values = queries.bound(name, **arguments)
    return await explain(connection, text, *values)


class SentStatements:
    """The statements that were sent since it was made, each with the connection that sent it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._sent: list[tuple[Connection, str, tuple[Any, ...]]] = []
        fetch = Connection.fetch

        async def noted(connection: Connection, query: str, *arguments: Any) -> Any:
            self._sent.append((connection, query, arguments))
            return await fetch(connection, query, *arguments)

        monkeypatch.setattr(Connection, "fetch", noted)

    async def plan(self, queries: Queries, name: str) -> Plan:
        """The plan of the first such statement, with the arguments and on a session with the
        settings that it was sent with. Forgets all that were sent so far."""
        sent, self._sent = self._sent, []
        text = queries(name)
        connection, arguments = next((it, values) for it, query, values in sent if query == text)
        return await connection.run(lambda session: explain(session, text, *arguments))


def _literal(value: Any) -> str:
    if isinstance(value, list):
        return _quoted(f"{{{','.join(map(_element, value))}}}")
    return "NULL" if value is None else _quoted(_text(value))


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    escaped = _text(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _text(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case bytes():
            return f"\\x{value.hex()}"
        case str() | int() | float() | UUID() | datetime():
            return str(value)
        case _:
            raise TypeError(f"no literal for {type(value)}")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def columns(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Rows as one array per column."""
    return [list(column) for column in zip(*rows, strict=True)]
