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
    """``history`` is what the load and the faults noted, ``sql`` a connection past every proxy.

    ``asked`` names the kinds of faults that the run was to have, ``surfaces`` those under load.
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
    """Where the history is written to, if it goes on."""

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
        """Open what a run left in ``folder`` and in its database, and close it again."""
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
        """The same, with what was noted meanwhile."""
        return self if self.path is None else replace(self, history=histories.read(self.path))

    @cached_property
    def executions(self) -> list[Row]:
        """Every time that a handler was begun, as the handlers noted it themselves."""
        return [] if self.path is None else histories.read_executions(self.path)

    def rows(self, *kinds: str) -> Iterator[Row]:
        """The history's rows of some kinds, in the order in which they were noted."""
        return (row for row in self.history if row["kind"] in kinds)

    @cached_property
    def calls(self) -> list[Call]:
        """Every call that was made, with what became of it."""
        made: dict[int, Call] = {}
        for row in self.rows("invoked", *_DEFINITE, "unknown"):
            if row["kind"] == "invoked":
                made[row["call"]] = Call(row)
            elif row["call"] in made:
                made[row["call"]].end = row
        return list(made.values())

    @cached_property
    def chains(self) -> list[list[Call]]:
        """Calls with their repetitions: each chain is one thing that somebody wanted done."""
        chains: dict[int, list[Call]] = defaultdict(list)
        for call in self.calls:
            chains[call.first].append(call)
        return list(chains.values())

    def log_files(self) -> list[Path]:
        return [path for path in files_below(self.folder) if path.suffix == ".log"]

    def log_rows(self, wanted: Callable[[str], bool]) -> Iterator[tuple[Path, Row]]:
        """What processes logged as JSON, where the raw line is ``wanted``: most lines are not."""
        for path in sorted((self.folder / "logs").glob("*.log")):
            with path.open(errors="replace") as lines:
                for line in lines:
                    if wanted(line):
                        try:
                            yield path, json.loads(line)
                        except json.JSONDecodeError:
                            continue  # the last line of a process that was killed, or a traceback

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
    """One request: what was invoked, and what was answered; ``end`` is None where nothing came."""

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
        """ok, failed or unknown. One that was never answered may have happened, too."""
        return "unknown" if self.end is None else str(self.end["kind"])

    @property
    def job(self) -> str | None:
        """The id that it was answered with."""
        return None if self.end is None else self.end.get("job")
