"""The evidence of a run, opened once for all checks."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import httpx2

from chaos import history as histories
from chaos.files import files_below

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

Row = dict[str, Any]
_DEFINITE = ("ok", "failed")
ALL_SURFACES = ("gateway", "graphs", "batches", "llm", "speech")


@dataclass
class Evidence:
    """``history`` is the record of the load and the faults, ``sql`` a connection without a proxy.

    ``asked`` has the requested kinds of faults, ``surfaces`` the products under load.
    """

    history: Sequence[Row]
    sql: Connection
    dsn: str
    folder: Path
    urls: Sequence[str] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    canaries: Sequence[bytes] = ()
    asked: Collection[str] = ()
    surfaces: Collection[str] = ALL_SURFACES
    path: Path | None = None
    """The file of the history, if it is still written."""

    @classmethod
    @asynccontextmanager
    async def gathered(
        cls,
        *,
        folder: Path,
        dsn: str,
        history: Path,
        urls: Sequence[str],
        keys: Mapping[str, str],
        canaries: Sequence[bytes],
        asked: Collection[str],
        surfaces: Collection[str] = ALL_SURFACES,
    ) -> AsyncIterator[Evidence]:
        """Open the evidence of a run in ``folder`` and in its database. A context manager."""
        connection = await asyncpg.connect(dsn)
        try:
            yield cls(
                history=histories.read(history),
                sql=connection,
                dsn=dsn,
                folder=folder,
                urls=urls,
                keys=keys,
                canaries=canaries,
                asked=asked,
                surfaces=surfaces,
                path=history,
            )
        finally:
            await connection.close()

    def reread(self) -> Evidence:
        """The same evidence with the rows added meanwhile."""
        return self if self.path is None else replace(self, history=histories.read(self.path))

    @cached_property
    def executions(self) -> list[Row]:
        """Every start of a handler, as the handlers recorded it."""
        return [] if self.path is None else histories.read_executions(self.path)

    def rows(self, *kinds: str) -> Iterator[Row]:
        """The history's rows of some kinds, in order."""
        return (row for row in self.history if row["kind"] in kinds)

    @cached_property
    def calls(self) -> list[Call]:
        """Every call with its outcome."""
        made: dict[int, Call] = {}
        for row in self.rows("invoked", *_DEFINITE, "unknown"):
            if row["kind"] == "invoked":
                made[row["call"]] = Call(row)
            elif row["call"] in made:
                made[row["call"]].end = row
        return list(made.values())

    @cached_property
    def chains(self) -> list[list[Call]]:
        """Calls with their repetitions: each chain is one intended operation."""
        chains: dict[int, list[Call]] = defaultdict(list)
        for call in self.calls:
            chains[call.first].append(call)
        return list(chains.values())

    def log_files(self) -> list[Path]:
        return [path for path in files_below(self.folder) if path.suffix == ".log"]

    def log_rows(self, wanted: Callable[[str], bool]) -> Iterator[tuple[Path, Row]]:
        """The JSON log lines of the processes that pass ``wanted``, a filter on raw lines."""
        for path in sorted((self.folder / "logs").glob("*.log")):
            with path.open(errors="replace") as lines:
                for line in lines:
                    if wanted(line):
                        try:
                            yield path, json.loads(line)
                        except json.JSONDecodeError:
                            continue  # the last line of a killed process, or a traceback

    @asynccontextmanager
    async def http(self, org: str) -> AsyncIterator[httpx2.AsyncClient]:
        """A client of the first server, with the key of an organisation."""
        async with httpx2.AsyncClient(
            base_url=self.urls[0],
            headers={"Authorization": f"Bearer {self.keys[org]}"},
            timeout=30,
            trust_env=False,
        ) as client:
            yield client


class Call:
    """One request: the call and its answer; ``end`` is None without an answer."""

    def __init__(self, invoked: Row) -> None:
        self.invoked = invoked
        self.end: Row | None = None

    def __repr__(self) -> str:
        return f"call {self.invoked['call']} ({self.surface} {self.operation}, {self.outcome})"

    @property
    def first(self) -> int:
        """The call that this one repeats, or itself."""
        return int(self.invoked.get("repeats") or self.invoked["call"])

    @property
    def surface(self) -> str:
        return str(self.invoked["surface"])

    @property
    def operation(self) -> str:
        return str(self.invoked["operation"])

    @property
    def org(self) -> str | None:
        return self.invoked.get("org")

    @property
    def key(self) -> str | None:
        return self.invoked.get("key")

    @property
    def expect(self) -> str:
        return self.invoked.get("expect") or "any"

    @property
    def outcome(self) -> str:
        """ok, failed or unknown. A call without an answer may have happened."""
        return "unknown" if self.end is None else str(self.end["kind"])

    @property
    def job(self) -> str | None:
        """The id in its answer."""
        return None if self.end is None else self.end.get("job")
