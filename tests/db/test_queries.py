"""Named statements: parameters, fragments, and the repetition while PostgreSQL is unavailable."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.queries import Queries, in_transaction
from coatcheck.domain.errors import DatabaseUnavailable
from tests.db.rows import connected

STATEMENTS = """\
-- name: greet
-- A comment with :no parameter.
SELECT :word::text || ', ' || :name::text || /* include mark */ || :word::text AS greeting

-- name: mark
:mark::text

-- name: foreign
SELECT /* include coatcheck.core:jobs/view_columns */

-- name: refuse
SELECT nextval('tries'), refuse()

-- name: refuse_once once
SELECT nextval('tries'), refuse()
"""
REFUSE = """
CREATE SEQUENCE tries;
CREATE FUNCTION refuse() RETURNS void LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = 'serialization_failure'; END $$
"""


@pytest.fixture
def queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queries:
    folder = tmp_path / "statements_of_a_test"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "words.sql").write_text(STATEMENTS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return Queries("statements_of_a_test", "words")


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    db = Connection(dsn, name="test")
    yield db
    await db.close()


async def test_a_statement_gets_its_arguments_by_name(queries: Queries, line: Connection) -> None:
    greeting = await queries.value(line, "greet", name="Ann", mark="!", word="Hello")
    assert greeting == "Hello, Ann!Hello"
    text, values = queries.bound("words/greet", name="Ann", mark="!", word="Hello")
    assert await line.fetch(text, *values) == [(greeting,)]


async def test_missing_and_unknown_arguments_are_refused(
    queries: Queries, line: Connection
) -> None:
    with pytest.raises(TypeError, match="missing or unknown: mark, words"):
        await queries.fetch(line, "greet", name="Ann", word="Hello", words="Hello")


@pytest.mark.parametrize(("name", "tries"), [("refuse", 3), ("refuse_once", 1)])
async def test_a_statement_is_repeated_unless_it_must_run_once(
    queries: Queries, line: Connection, name: str, tries: int
) -> None:
    await line.run(lambda raw: raw.execute(REFUSE))
    with pytest.raises(DatabaseUnavailable):
        await queries.fetch(line, name)
    assert await line.fetch("SELECT last_value FROM tries") == [(tries,)]


async def test_a_transaction_is_repeated_as_a_whole(line: Connection) -> None:
    await line.fetch("CREATE TABLE words (word text)")
    tries = 0

    async def write(raw: RawConnection) -> int:
        nonlocal tries
        tries += 1
        await raw.execute("INSERT INTO words VALUES ($1)", f"try {tries}")
        if tries == 1:
            raise asyncpg.SerializationError("somebody else was first")
        return tries

    assert await in_transaction(line, write) == 2
    assert await line.fetch("SELECT word FROM words") == [("try 2",)]


async def test_a_statement_whose_backend_was_ended_is_sent_again(
    queries: Queries, line: Connection
) -> None:
    ((pid,),) = await line.fetch("SELECT pg_backend_pid()")
    async with connected(line.database_url) as other:
        await other.fetch("SELECT pg_terminate_backend($1)", pid)
    assert await queries.value(line, "greet", name="Ann", mark="!", word="Hello") is not None
    ((again,),) = await line.fetch("SELECT pg_backend_pid()")
    assert again != pid


async def test_a_statement_of_a_transaction_is_not_repeated(
    queries: Queries, line: Connection
) -> None:
    await line.run(lambda raw: raw.execute(REFUSE))

    async def refused(raw: RawConnection) -> None:
        with pytest.raises(asyncpg.SerializationError):
            await queries.fetch(raw, "refuse")

    await line.run(refused)
    assert await line.fetch("SELECT last_value FROM tries") == [(1,)]


def test_a_fragment_may_be_of_another_package(queries: Queries) -> None:
    assert queries("foreign") == f"SELECT {Queries('coatcheck.core.queries')('jobs/view_columns')}"
