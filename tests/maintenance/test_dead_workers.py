"""Workers of this host whose processes are gone are found, and no others."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from coatcheck.core.queries import leases
from coatcheck.core.queries.leases import RegistrationGone
from coatcheck.db.connection import Connection
from coatcheck.domain.lanes import DEFAULT_POLICIES
from coatcheck.domain.states import State
from coatcheck.maintenance.loop import Loop
from coatcheck.processes import ProcessIdentity, this_process
from coatcheck.settings import Settings
from tests.all_products import maintenance
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import ENDPOINT, put_job, row_of, state_of
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no process can be looked for")

WAIT = """
import sys
from coatcheck.processes import this_process
print(this_process().ticks, flush=True)
sys.stdin.read()
"""
CHILD = "import os, time; print(os.getpid(), flush=True); time.sleep(3600)"


class Process:
    """A process that workers are said to run in."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WAIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        ticks = int(self._process.stdout.readline())
        self.identity = ProcessIdentity(uuid4(), this_process().host, self._process.pid, ticks)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def process() -> Iterator[Process]:
    started = Process()
    yield started
    started.kill()


@pytest.fixture
async def detector(dsn: str, tmp_path: Path) -> AsyncIterator[Loop]:
    upkeep = maintenance(Settings(database_url=dsn, blob_url=(tmp_path / "blobs").as_uri()))
    (found,) = (loop for loop in upkeep.loops if loop.name == "dead worker detector")
    yield found
    await upkeep.stop()


@asynccontextmanager
async def registered(
    dsn: str, identity: ProcessIdentity | None, temp_dir: Path | None = None
) -> AsyncIterator[tuple[Connection, int]]:
    """A worker's row: the first of its database is the holder that put_job names."""
    line = Connection(dsn, name="test worker")
    try:
        boot = await leases.register(
            line,
            "test",
            "0",
            dict(DEFAULT_POLICIES),
            [ENDPOINT],
            process=identity,
            temp_dir=temp_dir,
        )
        yield line, boot
    finally:
        await line.close()


@pytest.mark.crash
async def test_jobs_of_a_dead_process_are_queued_at_once_and_it_is_refused_from_then_on(
    dsn: str, connection: AsyncpgConnection, detector: Loop, process: Process
) -> None:
    async with registered(dsn, process.identity) as (line, boot):
        job = await put_job(connection, State.PROCESSING, lane="bulk", failures_max=0)
        await detector.tick()
        assert await state_of(connection, job) is State.PROCESSING
        process.kill()
        await detector.tick()
        row = await row_of(connection, job)
        assert (row["state"], row["crashes"], row["failures"]) == ("queued", 1, 0)
        assert row["error_message"] == "its worker died"
        with pytest.raises(RegistrationGone):
            await leases.heartbeat(line, boot)


async def test_a_stopped_process_keeps_its_jobs(
    dsn: str, connection: AsyncpgConnection, detector: Loop, process: Process
) -> None:
    async with registered(dsn, process.identity) as (line, boot):
        job = await put_job(connection, State.PROCESSING)
        process.stop()
        await detector.tick()
        assert await state_of(connection, job) is State.PROCESSING
        assert await leases.heartbeat(line, boot) == []


@pytest.mark.crash
@pytest.mark.parametrize("what", ["another host", "no host", "no process"])
async def test_of_a_process_that_cannot_be_looked_for_only_its_silence_tells(
    dsn: str, connection: AsyncpgConnection, detector: Loop, process: Process, what: str
) -> None:
    identities = {
        "another host": replace(process.identity, host=f"{process.identity.host} elsewhere"),
        "no host": ProcessIdentity(uuid4()),
        "no process": None,
    }
    async with registered(dsn, identities[what]):
        job = await put_job(connection, State.PROCESSING)
        process.kill()
        await detector.tick()
        assert await state_of(connection, job) is State.PROCESSING


async def test_a_number_that_is_another_process_s_by_now_says_that_the_first_is_dead(
    dsn: str, connection: AsyncpgConnection, detector: Loop
) -> None:
    own = this_process()
    assert own.ticks is not None
    async with registered(dsn, replace(own, ticks=own.ticks - 100)):
        job = await put_job(connection, State.PROCESSING)
        await detector.tick()
        assert await state_of(connection, job) is State.QUEUED


@pytest.mark.crash
async def test_all_workers_of_a_dead_process_are_dead_and_no_sibling_s(
    dsn: str, connection: AsyncpgConnection, detector: Loop, process: Process
) -> None:
    async with (
        registered(dsn, process.identity) as (line, first),
        registered(dsn, process.identity) as (_, second),
        registered(dsn, this_process()) as (_, sibling),
    ):
        process.kill()
        await detector.tick()
        dead = await connection.fetch("SELECT boot FROM workers WHERE died_at IS NOT NULL")
        assert {row["boot"] for row in dead} == {first, second}
        assert await leases.heartbeat(line, sibling) == []


@pytest.mark.crash
async def test_what_its_isolated_jobs_had_started_is_ended_first(
    dsn: str, connection: AsyncpgConnection, detector: Loop, process: Process, tmp_path: Path
) -> None:
    folder = tmp_path / "coatcheck-dead"
    (folder / "job").mkdir(parents=True)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        env={"TMPDIR": str(folder / "job")},
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    try:
        async with registered(dsn, process.identity, folder):
            job = await put_job(connection, State.PROCESSING)
            process.kill()
            await detector.tick()
            assert await state_of(connection, job) is State.QUEUED
            assert eventually(child.poll, "the job's process has ended") == -9
    finally:
        child.kill()
        child.communicate()


@pytest.mark.crash
async def test_a_dead_worker_whose_job_cannot_be_ended_keeps_its_leases(
    dsn: str,
    connection: AsyncpgConnection,
    detector: Loop,
    process: Process,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A process that the kernel cannot end now, as one that waits for a disk that is gone."""
    monkeypatch.setattr("coatcheck.maintenance.jobs.kill_strays", lambda _: 1)
    async with registered(dsn, process.identity, tmp_path):
        job = await put_job(connection, State.PROCESSING)
        process.kill()
        await detector.tick()
        assert await state_of(connection, job) is State.PROCESSING


@pytest.mark.crash
async def test_a_dead_worker_is_no_longer_listed_as_alive_and_serves_nothing(
    dsn: str, connection: AsyncpgConnection, detector: Loop, process: Process
) -> None:
    from coatcheck.core.queries import sql

    async with registered(dsn, process.identity) as (line, boot):
        process.kill()
        await detector.tick()
        (listed,) = await sql.fetch(line, "workers/list", rows_max=10)
        assert (listed["boot"], listed["alive"]) == (boot, False)
