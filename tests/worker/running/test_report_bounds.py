"""What waits to be stored of a job's reports is bounded in bytes, whatever kind its handler is."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from coatcheck import Job, Service, State
from coatcheck.core.queries import reports
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import (
    OUTPUT_CHUNK_BYTES_MAX,
    REPORTS_UNDERWAY_BYTES,
    REPORTS_WAITING_BYTES,
    REPORTS_WAITING_BYTES_PER_JOB,
    UNAWAITED_REPORTS_BYTES,
    UNAWAITED_REPORTS_BYTES_PER_JOB,
)
from coatcheck.worker.reports import WaitingBytes
from tests.deployment import Deployment
from tests.worker.running.isolated_handlers import apart

CHUNKS, SIZE = 30, 200_000
BYSTANDERS = 20

lab = Service("lab")


@lab.post("/flood")
async def flood(job: Job, chunks: int, size: int) -> None:
    for _ in range(chunks):
        await job.emit("x" * size)


@lab.post("/thread")
def flood_in_thread(job: Job, chunks: int, size: int) -> None:
    for _ in range(chunks):
        job.emit("x" * size)


@lab.post("/careless", retries=0)
async def careless(job: Job, chunks: int, size: int) -> None:
    for _ in range(chunks):
        job.emit("x" * size)


@lab.post("/echo")
async def echo(value: int) -> int:
    return value


class SlowStore:
    """Storing events waits until the test opens it. ``sizes``: the bytes of each statement."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.asked = asyncio.Event()
        self.open = asyncio.Event()
        self._add = reports.add_events
        monkeypatch.setattr(reports, "add_events", self._slowly)

    async def _slowly(self, line: Any, events: Any, batch: int) -> None:
        self.sizes.append(sum(len(data) for _, _, data in events))
        self.asked.set()
        await self.open.wait()
        await self._add(line, events, batch)


@pytest.mark.parametrize("endpoint", ["lab.post__flood", "lab.post__thread", "apart.post__flood"])
async def test_a_handler_is_held_back_by_the_bytes_that_wait(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    store = SlowStore(monkeypatch)
    await deployment.start_worker(lab, apart)
    ticket = await deployment.engine.submit(endpoint, {"chunks": CHUNKS, "size": SIZE})
    await store.asked.wait()
    # The worker goes on meanwhile; so would the handler, if nothing held it.
    for number in range(BYSTANDERS):
        other = await deployment.engine.submit("lab.post__echo", {"value": number})
        assert (await deployment.wait_for_end(other)).state is State.COMPLETED
    store.open.set()

    assert (await deployment.wait_for_end(ticket)).state is State.COMPLETED
    assert sum(store.sizes) == CHUNKS * SIZE
    # Each has all that came while the one before it was under way.
    assert max(store.sizes) <= REPORTS_WAITING_BYTES_PER_JOB + REPORTS_UNDERWAY_BYTES + 2 * SIZE


async def test_an_async_handler_that_awaits_nothing_is_told_to(deployment: Deployment) -> None:
    await deployment.start_worker(lab)
    ticket = await deployment.engine.submit("lab.post__careless", {"chunks": 500, "size": SIZE})
    view = await deployment.wait_for_end(ticket)
    stored = await deployment.engine.events(ticket.id)

    assert view.state is State.FAILED
    assert "reports_not_awaited" in f"{view.error_code} {view.error_message}"
    assert sum(len(event.data) for event in stored) < UNAWAITED_REPORTS_BYTES_PER_JOB + SIZE


async def test_a_few_reports_that_nobody_awaits_are_stored(deployment: Deployment) -> None:
    await deployment.start_worker(lab)
    ticket = await deployment.engine.submit("lab.post__careless", {"chunks": 10, "size": SIZE})

    assert (await deployment.wait_for_end(ticket)).state is State.COMPLETED
    assert len(await deployment.engine.events(ticket.id)) == 10


async def test_one_statement_has_so_many_bytes(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SlowStore(monkeypatch)
    await deployment.start_worker(lab)
    tickets = [
        await deployment.engine.submit("lab.post__flood", {"chunks": 4, "size": SIZE})
        for _ in range(20)
    ]
    await store.asked.wait()
    for number in range(BYSTANDERS):
        await deployment.wait_for_end(
            await deployment.engine.submit("lab.post__echo", {"value": number})
        )
    store.open.set()
    for ticket in tickets:
        assert (await deployment.wait_for_end(ticket)).state is State.COMPLETED
    assert max(store.sizes) <= 4 * 1024 * 1024


def test_jobs_that_wait_when_they_must_keep_their_worker_within_its_bound() -> None:
    waiting = WaitingBytes()
    chunk = b"x" * OUTPUT_CHUNK_BYTES_MAX
    jobs = [_claimed(number) for number in range(100)]
    reported = 0
    for _ in range(10):
        for job in jobs:
            if not waiting.is_full_for(job):
                waiting.add((job, "binary", chunk))
                reported += 1
    assert reported > 1
    assert waiting.total <= REPORTS_WAITING_BYTES + 2 * len(chunk)
    assert not any(waiting.overflows_for(job) for job in jobs)


def test_jobs_that_never_wait_are_stopped_at_the_bound_of_all() -> None:
    waiting = WaitingBytes()
    chunk = b"x" * OUTPUT_CHUNK_BYTES_MAX
    patient, *careless = [_claimed(number) for number in range(100)]
    waiting.add((patient, "binary", chunk))
    for _ in range(100):
        for job in careless:
            if not waiting.overflows_for(job):
                waiting.add((job, "binary", chunk))
    most = REPORTS_WAITING_BYTES_PER_JOB + 2 * len(chunk)
    assert waiting.total <= UNAWAITED_REPORTS_BYTES + len(careless) * most
    assert not waiting.overflows_for(patient)


def _claimed(number: int) -> ClaimedJob:
    return ClaimedJob(
        org="acme",
        uuid=uuid4(),
        lane=Lane.STANDARD,
        endpoint="lab.post__flood",
        queue_key="",
        payload=b"",
        attempt=1,
        failures=0,
        unreachables=0,
        timeout_seconds=None,
        request_id=None,
        lease=number,
    )
