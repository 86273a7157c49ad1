"""Loads named SQL statements from files that stand beside the modules that call them.

``queries/tenants.py`` calls the statements of ``queries/tenants.sql``:

    -- name: list_keys
    -- The keys of an organisation, newest first. Index: api_keys_pkey.
    SELECT ... WHERE org_id = :org AND (:after::text IS NULL OR key_id < :after) LIMIT :limit

    sql = Queries("coatcheck.core.queries")
    rows = await sql.fetch(db, "tenants/list_keys", org=org, after=after, limit=limit)

A statement may include others, which are then its fragments: ``/* include list_keys */`` of the
same file, ``/* include webhooks/receivers */`` of another file of the folder, and
``/* include coatcheck.core:webhooks/receivers */`` of another package's queries.

A statement can have a crash point inside its transaction.
Our statements commit by themselves, so a process cannot be killed between the update and the commit
from outside. While a test has such a point armed, the statement runs in an explicit transaction and
the process dies before its COMMIT; otherwise this adds nothing.

A statement that returns rows dies only if it returned some, which shows that it did something.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final, NamedTuple, TypeVar

import asyncpg

from coatcheck.crash import crash_point, is_armed
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.errors import retried
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT

Result = TypeVar("Result")
Row = asyncpg.Record
"""A row of an answer: its columns by name, or in their order."""

_NAME: Final = re.compile(r"^-- name: (\w+)( once)?$", re.MULTILINE)
_INCLUDE: Final = re.compile(r"/\* include (?:(\S+):)?(\S+) \*/")
_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z]\w*)")
_UPSTREAM_ENDPOINT: Final = "/* upstream endpoint */"
"""A placeholder for the name of the one endpoint that statements know."""


class _Statement(NamedTuple):
    """``text`` has the parameters ``$1``, ``$2``, ... in the order of ``parameters``."""

    text: str
    parameters: tuple[str, ...]
    is_repeatable: bool

    def values(self, arguments: dict[str, Any]) -> list[Any]:
        """The arguments in the order of the parameters. Raises TypeError if they do not fit."""
        if arguments.keys() != {*self.parameters}:
            wrong = sorted(arguments.keys() ^ {*self.parameters})
            raise TypeError(f"arguments that are missing or unknown: {', '.join(wrong)}")
        return [arguments[name] for name in self.parameters]


class Queries:
    """The statements in the files of a package, by the names ``file/name``.

    A call on a ``Connection`` is repeated for a few seconds while PostgreSQL is unavailable, unless
    the statement's name is followed by ``once``: it must not take effect twice. A call on a raw
    connection is part of its caller's transaction, and is not repeated.
    """

    def __init__(self, package: str, file: str = "") -> None:
        """``file`` is the one that is meant by a name without a file."""
        self._package = package
        self._file = file

    def __call__(self, name: str) -> str:
        """The text of a statement, for a caller that runs it itself."""
        return self._statement(name).text

    def bound(self, name: str, /, **arguments: Any) -> tuple[str, list[Any]]:
        """The text of a statement and the values of its parameters in their order, for a caller
        that runs it itself, such as one that explains it."""
        statement = self._statement(name)
        return statement.text, statement.values(arguments)

    async def fetch(
        self, db: Connection | RawConnection, name: str, /, **arguments: Any
    ) -> list[asyncpg.Record]:
        """Run a statement and return its rows."""
        statement = self._statement(name)
        values = statement.values(arguments)
        if statement.is_repeatable and isinstance(db, Connection):
            return await retried(lambda: db.fetch(statement.text, *values))
        return await db.fetch(statement.text, *values)

    async def first(
        self, db: Connection | RawConnection, name: str, /, **arguments: Any
    ) -> asyncpg.Record | None:
        """Run a statement and return its first row, if there is one."""
        rows = await self.fetch(db, name, **arguments)
        return rows[0] if rows else None

    async def value(self, db: Connection | RawConnection, name: str, /, **arguments: Any) -> Any:
        """Run a statement and return the first column of its first row; None without a row."""
        rows = await self.fetch(db, name, **arguments)
        return rows[0][0] if rows else None

    def _statement(self, name: str) -> _Statement:
        file, _, own = name.rpartition("/")
        return _statement(self._package, file or self._file, own)


async def in_transaction(
    db: Connection,
    work: Callable[[RawConnection], Awaitable[Result]],
    *,
    readonly: bool = False,
) -> Result:
    """Run several statements as one transaction.

    Like a single statement, it is repeated for a few seconds while PostgreSQL is unavailable. So it
    must be able to run twice: the first time may have been committed.
    """

    async def attempt(connection: RawConnection) -> Result:
        async with connection.transaction(readonly=readonly):
            return await work(connection)

    return await retried(lambda: db.run(attempt))


@cache
def _statement(package: str, file: str, name: str) -> _Statement:
    once, text = _texts(package, file)[name]
    code = expanded(text, package, file)
    parameters = tuple(dict.fromkeys(_PARAMETER.findall(code)))
    numbers = {parameter: f"${at}" for at, parameter in enumerate(parameters, 1)}
    return _Statement(
        _PARAMETER.sub(lambda found: numbers[found[1]], code), parameters, is_repeatable=not once
    )


@cache
def _texts(package: str, file: str) -> Mapping[str, tuple[bool, str]]:
    return _named(resources.files(package).joinpath(f"{file}.sql"))


def _named(file: Traversable) -> Mapping[str, tuple[bool, str]]:
    """The statements of a file by name: whether each runs once only, and its text."""
    _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
    return {
        name: (once is not None, text)
        for name, once, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }


def expanded(text: str, package: str, file: str = "") -> str:
    """SQL without its comments, with the fragments that it includes."""
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    code = code.replace(_UPSTREAM_ENDPOINT, f"'{UPSTREAM_ENDPOINT}'")

    def included(found: re.Match[str]) -> str:
        other, name = found[1], found[2]
        folder = f"{other}.queries" if other else package
        of_file, _, own = name.rpartition("/")
        of_file = of_file or file
        return expanded(_texts(folder, of_file)[own][1], folder, of_file)

    return _INCLUDE.sub(included, code).strip()


def find(file: Traversable, name: str) -> str | None:
    """The statement of this name in a file that includes nothing; None if there is none."""
    found = _named(file).get(name) if file.is_file() else None
    return None if found is None else expanded(found[1], "")


async def query_or_die(
    db: Connection,
    point: str,
    queries: Queries,
    name: str,
    /,
    *,
    answers_rows: bool = True,
    **arguments: Any,
) -> list[asyncpg.Record]:
    """Run a named statement, as ``Queries.fetch`` does; die before its commit if ``point`` is
    armed."""
    if not is_armed(point):
        return await queries.fetch(db, name, **arguments)
    text, values = queries.bound(name, **arguments)
    return await fetch_or_die(db, point, text, *values, answers_rows=answers_rows)


async def fetch_or_die(
    db: Connection, point: str, query: str, *arguments: Any, answers_rows: bool = True
) -> list[asyncpg.Record]:
    """Run the text of a statement, once; die before its commit if ``point`` is armed."""
    if not is_armed(point):
        return await db.fetch(query, *arguments)

    async def dying(connection: RawConnection) -> list[asyncpg.Record]:
        async with connection.transaction():
            rows = await connection.fetch(query, *arguments)
            if rows or not answers_rows:
                crash_point(point)
            return rows

    return await db.run(dying)
