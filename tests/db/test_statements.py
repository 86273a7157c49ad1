"""Every statement of the program is one that PostgreSQL accepts, has a reason, and is used."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

import asyncpg
import pytest

from coatcheck.db.queries import Queries
from tests.statements import SOURCE, Statement, statements

ALL: Final = [*statements()]
STARTS: Final = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "SET", "LOCK")
PART_OF_PRUNE: Final = "removed_with_jobs"
"""A product's statement that becomes a part of the core's maintenance/prune."""
INCLUDE: Final = re.compile(r"/\* include (?:(\S+):)?(\S+) \*/")


@cache
def modules() -> str:
    """The text of every module."""
    return "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))


def is_called(statement: Statement) -> bool:
    """Whether some module names the statement."""
    return f'"{statement.file}/{statement.name}"' in modules() or f'"{statement.name}"' in modules()


@cache
def included() -> frozenset[tuple[str, str, str]]:
    """The fragments, as package, file and name."""
    found = set()
    for statement in ALL:
        for other, name in INCLUDE.findall(statement.code):
            file, _, own = name.rpartition("/")
            package = f"{other}.queries" if other else statement.package
            found.add((package, file or statement.file, own))
    return frozenset(found)


def is_whole(statement: Statement) -> bool:
    """Whether it can be run as it is: some fragments are named by modules as well."""
    return (
        is_called(statement)
        and statement.name != PART_OF_PRUNE
        and statement.code.startswith(STARTS)
    )


async def test_postgresql_accepts_every_statement(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    refused = {}
    for statement in filter(is_whole, ALL):
        text = Queries(statement.package, statement.file)(statement.name)
        for command in filter(None, map(str.strip, text.split(";\n"))):
            try:
                await connection.prepare(command)
            except asyncpg.PostgresError as error:
                refused[str(statement)] = str(error)
    await connection.close()
    assert refused == {}


@pytest.mark.parametrize("statement", ALL, ids=str)
def test_a_statement_is_used(statement: Statement) -> None:
    key = (statement.package, statement.file, statement.name)
    assert is_called(statement) or key in included()


@pytest.mark.parametrize("statement", ALL, ids=str)
def test_a_statement_says_what_it_does(statement: Statement) -> None:
    assert statement.header.startswith("-- ")
