"""kill -9 of a worker: whoever saw it die has its jobs start again, long before its lease ends.

The leases are of five minutes in every lane, and the waits here are of one: a job that goes on
within it did not wait for a lease. Its timeout is of a second and it has no retries, so a job that
was judged by its deadline while nobody ran it would have failed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from coatcheck import Engine, JobView, State, Ticket
from coatcheck.domain.lanes import Lane
from coatcheck.settings import Settings
from tests.e2e.conftest import Up, environment, start_coatcheck
from tests.forked_process import ForkedProcess
from tests.waiting import eventually, eventually_async

LONG_LEASES = "urgent=300,standard=300,bulk=300"
SERVICE = """
import asyncio, os, subprocess, sys
from coatcheck import Job, Service

deaths = Service("deaths")


def begun(log: str, job: Job, *others: int) -> None:
    with open(log, "a") as file:
        file.write(" ".join(map(str, (job.id, job.attempt, os.getpid(), *others))) + "\\n")


@deaths.post("/hang_once", timeout=1, retries=0)
async def hang_once(log: str, job: Job) -> int:
    begun(log, job)
    if job.attempt == 1:
        os.kill(os.getpid(), 19)  # SIGSTOP: its deadline passes, and its worker does not notice
    return job.attempt


@deaths.post("/wait_once", timeout=3600, retries=0)
async def wait_once(log: str, job: Job) -> int:
    begun(log, job)
    if job.attempt == 1:
        await asyncio.sleep(3600)
    return job.attempt


@deaths.post("/family_once", timeout=3600, retries=0, isolated=True)
def family_once(log: str, job: Job) -> int:
    if job.attempt == 1:
        other = subprocess.Popen(["sleep", "3600"], start_new_session=True)
        begun(log, job, other.pid)
        other.wait()
    begun(log, job)
    return job.attempt
"""

pytestmark = [pytest.mark.slow, pytest.mark.crash]


class Workers:
    """Bare ``coatcheck worker`` processes on one database and one machine."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "begun"
        self._dsn = dsn
        self._processes: list[ForkedProcess] = []
        (folder / "deaths.py").write_text(SERVICE)

    def start(self, **variables: str) -> ForkedProcess:
        log = self.folder / f"worker-{len(self._processes)}.log"
        with log.open("wb") as output:
            process = start_coatcheck(
                *("worker", "deaths:deaths"),
                cwd=self.folder,
                env=environment(
                    COATCHECK_DATABASE_URL=self._dsn,
                    COATCHECK_BLOB_URL=(self.folder / "blobs").as_uri(),
                    COATCHECK_TEMP_DIR=str(self.folder / "temp"),
                    COATCHECK_GRAPHS_CONCURRENCY="0",
                    COATCHECK_LANE_ACK_SECONDS=LONG_LEASES,
                    **variables,
                ),
                output=output,
                start_new_session=True,
            )
        self._processes.append(process)
        eventually(
            lambda: process.poll() is not None or "worker ready" in log.read_text(),
            "the worker is ready",
        )
        assert process.poll() is None, log.read_text()
        return process

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def executions(self) -> list[list[str]]:
        """Of every execution that was begun: job, attempt, process, and what else it noted."""
        return executions(self.log)


def executions(log: Path) -> list[list[str]]:
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


@pytest.fixture
def workers(dsn: str, tmp_path: Path) -> Iterator[Workers]:
    started = Workers(dsn, tmp_path)
    yield started
    started.close()


@pytest.fixture
async def engine(dsn: str, tmp_path: Path) -> AsyncIterator[Engine]:
    settings = Settings(database_url=dsn, blob_url=(tmp_path / "blobs").as_uri())
    async with Engine(settings) as opened:
        yield opened


async def begun(workers: Workers, ticket: Ticket) -> list[str]:
    """What the job noted as it began."""

    async def look() -> list[str] | None:
        return next((noted for noted in workers.executions() if noted[0] == ticket.id), None)

    noted: list[str] = await eventually_async(look, "the job has begun")
    return noted


async def end_of(engine: Engine, ticket: Ticket) -> JobView:
    async def look() -> JobView | None:
        view = await engine.get(ticket.id)
        return view if view.state.terminal else None

    view: JobView = await eventually_async(look, "the job has ended, without waiting for a lease")
    return view


@pytest.mark.parametrize("lane", Lane)
async def test_the_job_of_a_killed_worker_is_completed_by_its_sibling(
    lane: Lane, workers: Workers, engine: Engine
) -> None:
    victim = workers.start()
    ticket = await engine.submit(
        "deaths.post__hang_once", {"log": str(workers.log)}, lane=lane, timeout=1, retries=0
    )
    assert int((await begun(workers, ticket))[2]) == victim.pid
    workers.start()
    victim.kill()
    # Not waited for: to the kernel it is a zombie from now on.
    view = await end_of(engine, ticket)
    assert (view.state, view.result) == (State.COMPLETED, b"2")
    assert (view.crashes, view.failures, view.interruptions) == (1, 0, 0)


async def test_a_stopped_worker_keeps_its_job_beside_one_that_is_dead(
    workers: Workers, engine: Engine, dsn: str
) -> None:
    stopped = workers.start()
    kept = await engine.submit("deaths.post__wait_once", {"log": str(workers.log)})
    await begun(workers, kept)
    stopped.send_signal(signal.SIGSTOP)
    victim = workers.start()
    lost = await engine.submit("deaths.post__wait_once", {"log": str(workers.log)})
    assert int((await begun(workers, lost))[2]) == victim.pid
    workers.start()
    victim.kill()
    assert (await end_of(engine, lost)).crashes == 1
    view = await engine.get(kept.id)
    assert view.state.held
    assert view.crashes == 0


async def test_what_a_dead_workers_job_had_started_is_ended_before_the_job_begins_again(
    workers: Workers, engine: Engine
) -> None:
    victim = workers.start()
    ticket = await engine.submit("deaths.post__family_once", {"log": str(workers.log)})
    noted = await begun(workers, ticket)
    family = [psutil.Process(int(pid)) for pid in noted[2:]]
    assert len(family) == 2
    workers.start()
    victim.kill()
    view = await end_of(engine, ticket)
    assert (view.state, view.result, view.crashes) == (State.COMPLETED, b"2", 1)
    assert not any(alive(process) for process in family)


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@contextmanager
def asking(up: Up) -> Iterator[httpx2.Client]:
    with httpx2.Client(
        base_url=f"http://127.0.0.1:{up.port}/api/v1/orgs/default",
        headers={"Authorization": f"Bearer {(up.data / 'dev-key').read_text().strip()}"},
        timeout=30,
        trust_env=False,
    ) as client:
        yield client


def test_under_up_the_job_of_a_killed_worker_is_completed_by_its_successor_in_every_lane(
    start_up: Callable[..., Up], data_root: Path
) -> None:
    (data_root / "deaths.py").write_text(SERVICE)
    log = data_root / "begun"
    up = start_up(
        "deaths:deaths",
        COATCHECK_LANE_ACK_SECONDS=LONG_LEASES,
        COATCHECK_GRAPHS_CONCURRENCY="0",
    )
    up.wait_until_ready()
    with asking(up) as client:
        jobs = {lane: submitted(client, log, lane) for lane in Lane}
        eventually(lambda: len(executions(log)) == len(jobs), "all have begun")
        (pid,) = {int(noted[2]) for noted in executions(log)}
        os.kill(pid, signal.SIGKILL)
        for job in jobs.values():
            shown = eventually(lambda job=job: ended(client, job), "the job has ended")
            assert (shown["state"], shown["result"]) == ("completed", 2)
            assert (shown["crashes"], shown["failures"]) == (1, 0)


def submitted(client: httpx2.Client, log: Path, lane: Lane) -> str:
    answer = client.post(
        "/services/deaths/async/wait_once",
        json={"log": str(log)},
        headers={"X-HSL-Lane": lane.value},
    )
    answer.raise_for_status()
    job: str = answer.json()["job_id"]
    return job


def ended(client: httpx2.Client, job: str) -> dict[str, Any] | None:
    answer = client.get(f"/jobs/{job}")
    answer.raise_for_status()
    shown: dict[str, Any] = answer.json()
    return shown if shown["state"] in ("completed", "failed", "cancelled") else None
