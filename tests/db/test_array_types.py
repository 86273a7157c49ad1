"""Connections know PostgreSQL's own array types, and ask the server about others only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from coatcheck.db.connection import ARRAY_TYPES, RawConnection, close_gently, open_connection

VALUES: dict[str, list[Any]] = {
    "json": ['{"a": 1}', None],
    "bool": [True, None, False],
    "bytea": [b"\x00\xff", b""],
    "int2": [-32_768, 32_767],
    "int4": [1, None],
    "int8": [2**62],
    "float4": [0.5],
    "float8": [0.1, float("inf")],
    "date": [date(2026, 1, 31)],
    "timestamptz": [datetime(2026, 1, 31, 12, tzinfo=UTC)],
    "interval": [timedelta(seconds=1.5)],
    "numeric": [Decimal("1.10")],
    "uuid": [UUID(int=7), None],
    "jsonb": ['{"a": 1}'],
}


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[RawConnection]:
    opened = await open_connection(dsn, name="tests", settings={}, statement_seconds_max=None)
    yield opened
    await close_gently(opened)


async def asked_about_types(connection: RawConnection) -> bool:
    """The driver's question stays prepared in its session."""
    return bool(
        await connection.fetchval(
            "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%typeinfo_tree%'"
            " AND statement NOT LIKE '%pg_prepared_statements%'"
        )
    )


async def test_the_arrays_are_the_servers(connection: RawConnection) -> None:
    rows = await connection.fetch(
        "SELECT a.oid, e.typname, e.oid AS element FROM pg_type AS a"
        " JOIN pg_type AS e ON e.oid = a.typelem WHERE e.typarray = a.oid AND a.oid < 10000"
    )
    assert (
        ARRAY_TYPES.items()
        <= {row["oid"]: (row["typname"], row["element"]) for row in rows}.items()
    )


async def test_arrays_go_there_and_back_without_a_question_about_them(
    connection: RawConnection,
) -> None:
    assert set(VALUES) == {name for name, _ in ARRAY_TYPES.values()}
    for name, values in VALUES.items():
        row = await connection.fetchrow(
            f"SELECT $1::{name}[] AS whole, ($1::{name}[])[1]::text AS first", values
        )
        assert row is not None
        assert row["whole"] == values
        assert row["first"]
    assert not await asked_about_types(connection)


async def test_the_server_is_asked_about_types_of_ours(connection: RawConnection) -> None:
    values = ["queued", "failed"]
    assert await connection.fetchval("SELECT $1::job_state[]", values) == values
    assert await asked_about_types(connection)
    # Together with one that is known.
    row = await connection.fetchrow("SELECT $1::job_lane[] AS a, $2::uuid[] AS b", ["bulk"], [])
    assert row is not None
    assert [*row] == [["bulk"], []]
