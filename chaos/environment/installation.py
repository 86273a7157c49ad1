"""An installed Coatcheck: real commands on a database that a test disturbs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import asyncpg
import httpx2

from chaos.environment.callers import Callers
from chaos.environment.waiting import WAIT_SECONDS_MAX, until
from coatcheck.core.queries import tenants
from coatcheck.db.connection import Connection
from coatcheck.domain.ids import from_text
from coatcheck.domain.states import State
from coatcheck.domain.tenants import ALL_SCOPES, OrgLimits, mint
from tests.e2e.conftest import free_port
from tests.e2e.faults import history

ROOT = Path(__file__).resolve().parents[2]
YARD = "chaos.environment.services:yard"
WORKER_IS_READY = "worker ready"
_PEPPER = "a pepper that is only ever used in tests"


class Program:
    """A running command and its log."""

    def __init__(self, log: Path, arguments: list[str], environment: Mapping[str, str]) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "coatcheck.cli", *arguments],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def messages(self) -> list[str]:
        """Its log messages."""
        lines = [line for line in self.log.splitlines() if line.startswith("{")]
        return [json.loads(line)["message"] for line in lines]

    async def says(self, text: str) -> None:
        """Wait until its log has this text."""

        async def look() -> bool:
            ended = self.process.poll() is not None
            if text in self.log:
                return True
            assert not ended, f"it ended and never said {text!r}:\n{self.log}"
            return False

        await until(look, f"{text!r} is said")

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        if self.runs:
            self.process.kill()
        self.process.wait()


class Installation:
    """One server, workers and callers. A context manager, which ends the remaining ones.

    ``direct`` is the database's URL for the test itself, ``dsn`` the URL for the processes, if that
    is another one. Leases are short, so that a test sees them end.
    """

    def __init__(
        self, direct: str, folder: Path, *, dsn: str | None = None, **variables: str
    ) -> None:
        self.direct = direct
        self.folder = folder
        self._key = mint()
        self._port = free_port()
        self._programs: list[Program] = []
        self._executions = folder / "executions"
        self._environment = _inherited() | {
            "COATCHECK_DATABASE_URL": dsn or direct,
            "COATCHECK_BLOB_URL": (folder / "blobs").as_uri(),
            "COATCHECK_TEMP_DIR": str(folder / "temp"),
            "COATCHECK_LOG_FORMAT": "json",
            "COATCHECK_KEY_PEPPER": _PEPPER,
            "COATCHECK_LANE_ACK_SECONDS": "urgent=3,standard=4,bulk=6",
            "COATCHECK_DRAIN_SECONDS": "1",
            "COATCHECK_GRAPHS_CONCURRENCY": "0",
            "PYTHONPATH": os.pathsep.join(
                [str(ROOT / "src"), str(ROOT / "packages/codegraph/src"), str(ROOT)]
            ),
            **variables,
        }

    async def __aenter__(self) -> Self:
        self.sql: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(self.direct)
        await history.keep(self.sql)
        await self._furnish()
        self.http = httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{self._port}",
            headers={"Authorization": f"Bearer {self._key.text}"},
            trust_env=False,
            timeout=WAIT_SECONDS_MAX,
        )
        self.callers = Callers(self.http, {"log": str(self._executions)})
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.callers.leave()
        for program in self._programs:
            program.end()
            print(f"--- {program.process.args!r}\n{program.log[-20_000:]}")  # shown after a failure
        await self.http.aclose()
        self.sql.terminate()

    # Processes

    async def serve(
        self, variables: Mapping[str, str] | None = None, *, port: int | None = None
    ) -> Program:
        """Start ``coatcheck serve``, and wait until it answers. Callers use it unless on a port."""
        port = port or self._port
        program = self._start(["serve", "--port", str(port)], variables or {})

        async def answers() -> bool:
            assert program.runs, program.log
            with suppress(httpx2.HTTPError):
                answer = await self.http.get(f"http://127.0.0.1:{port}/healthz")
                return bool(answer.is_success)
            return False

        await until(answers, "the server answers")
        return program

    async def work(self, variables: Mapping[str, str] | None = None) -> Program:
        """Start ``coatcheck worker``, and wait until it claims."""
        program = self._start(["worker", YARD], variables or {})
        await program.says(WORKER_IS_READY)
        return program

    def _start(self, arguments: list[str], variables: Mapping[str, str]) -> Program:
        log = self.folder / f"{len(self._programs)}-{arguments[0]}.log"
        program = Program(log, arguments, {**self._environment, **variables})
        self._programs.append(program)
        return program

    async def _furnish(self) -> None:
        line = Connection(self.direct, name="tests")
        try:
            await tenants.create_org(line, "default", "default", OrgLimits())
            await tenants.create_key(
                line,
                "default",
                self._key.key_id,
                user="dev",
                name="test",
                digest=self._key.digest(_PEPPER.encode()),
                scopes=ALL_SCOPES,
                rate=None,
                seconds_to_live=None,
            )
        finally:
            await line.close()

    async def reconnect(self, direct: str | None = None) -> None:
        """Reconnect the test itself, after an outage or to another server."""
        self.direct = direct or self.direct
        self.sql.terminate()
        self.sql = await asyncpg.connect(self.direct)

    # Outcome

    def payload(self, **more: str) -> dict[str, str]:
        """The input of the handlers; see services.py."""
        return {"log": str(self._executions), **more}

    def executions(self) -> Counter[str]:
        """The number of executions of each job."""
        if not self._executions.exists():
            return Counter()
        return Counter(line.split()[0] for line in self._executions.read_text().splitlines())

    async def ran_more(self, jobs: int = 10) -> None:
        """Wait for this many more executions."""
        seen = self.executions().total()

        async def look() -> bool:
            return self.executions().total() >= seen + jobs

        await until(look, "workers run jobs")

    async def all_ended(self) -> None:
        """Wait until every job has ended."""

        async def look() -> bool:
            return not await self.sql.fetchval(
                "SELECT count(*) FROM jobs WHERE state NOT IN ('completed', 'failed', 'cancelled')"
            )

        try:
            await until(look, "every job has ended")
        except AssertionError:
            left = await self.sql.fetch("SELECT state, count(*) FROM jobs GROUP BY 1")
            raise AssertionError(f"jobs did not end: {[tuple(row) for row in left]}") from None

    async def nothing_was_lost(self) -> None:
        """A, B, C and D: every acknowledged job has ended once, by legal steps, one job per key.

        ``callers`` must have stopped, with an answer to every call.
        """
        await self.all_ended()
        acknowledged = {key: from_text(job) for key, job in self.callers.acknowledged.items()}
        assert acknowledged, "no call was acknowledged: the test did nothing"
        rows = await self.sql.fetch("SELECT id, idempotency_key, state::text, failures FROM jobs")
        known: dict[UUID, Any] = {row["id"]: row for row in rows}
        steps = await history.read(self.sql)
        assert [step for step in steps if not step.legal] == []
        ends = Counter(step.id for step in steps if step.after.terminal)

        assert len(set(acknowledged.values())) == len(acknowledged), "two keys, one job"
        keys = Counter(row["idempotency_key"] for row in rows if row["idempotency_key"])
        assert [key for key, count in keys.items() if count > 1] == [], "one key, two jobs"
        lost = [key for key, job in acknowledged.items() if job not in known]
        assert lost == [], f"acknowledged and gone: {lost}"
        assert {job: count for job, count in ends.items() if count != 1} == {}
        for key, job in acknowledged.items():
            assert known[job]["state"] == State.COMPLETED, (key, dict(known[job]))
        told = {*acknowledged.values()}
        unasked = [row["idempotency_key"] for row in rows if row["id"] not in told]
        assert unasked == [], "jobs without an acknowledgement"
        executions = self.executions()
        assert [key for key, job in self.callers.acknowledged.items() if not executions[job]] == []


def _inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("COATCHECK_")}
