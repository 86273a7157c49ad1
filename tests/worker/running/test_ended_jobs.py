"""Who asked for it is told of each job whose end is committed, and an input goes at once then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck import FailJob, Job, RetryLater, Service, State, Ticket
from coatcheck.blobs import BlobContainer
from coatcheck.blobs.pieces import store_pieces
from coatcheck.domain.ids import new_id
from coatcheck.domain.inputs import InputRecord, Mechanism, StoredInput
from coatcheck.domain.job import ClaimedJob
from coatcheck.worker import input_disposal
from coatcheck.worker.input_disposal import InputDisposal
from tests.deployment import Deployment
from tests.waiting import eventually_async

ENDED = "lab.post__end"
OTHER = "lab.post__other"


def a_service() -> Service:
    service = Service("lab")

    @service.post("/end")
    async def end(job: Job, how: str) -> str:
        match how:
            case "fail":
                raise FailJob("as asked")
            case "retry" if job.attempt == 1:
                raise RetryLater(0)
            case "wait":
                await asyncio.Event().wait()
        return how

    @service.post("/other")
    async def other() -> None: ...

    return service


@pytest.mark.parametrize("how", ["return", "fail", "retry"])
async def test_who_asked_is_told_once_of_each_end_and_of_no_other_endpoints(
    deployment: Deployment, how: str
) -> None:
    told: list[tuple[ClaimedJob, State]] = []
    ends = {"return": State.COMPLETED, "fail": State.FAILED, "retry": State.COMPLETED}
    looks: list[asyncio.Task[None]] = []

    async def look(job: ClaimedJob) -> None:
        told.append((job, (await deployment.engine.get(ticket.id)).state))

    def ended(job: ClaimedJob) -> None:
        looks.append(asyncio.create_task(look(job)))

    deployment.start_maintenance()
    ticket = await deployment.engine.submit(ENDED, {"how": how})
    other = await deployment.engine.submit(OTHER)
    worker = await deployment.start_worker(a_service(), on_ended={ENDED: ended})
    await deployment.wait_for_end(ticket)
    await deployment.wait_for_end(other)
    await deployment.stop_worker(worker)
    await asyncio.gather(*looks)
    assert [(job.uuid, state) for job, state in told] == [(ticket.uuid, ends[how])]


async def test_a_cancelled_job_is_told_of_too(deployment: Deployment) -> None:
    told: list[ClaimedJob] = []
    worker = await deployment.start_worker(a_service(), on_ended={ENDED: told.append})
    ticket = await deployment.engine.submit(ENDED, {"how": "wait"})
    await deployment.wait_for_state(ticket, State.PROCESSING)
    await deployment.engine.cancel(ticket.id)
    await deployment.wait_for_end(ticket)
    await deployment.stop_worker(worker)
    assert [job.uuid for job in told] == [ticket.uuid]


async def test_a_job_that_was_taken_away_is_not_told_of(deployment: Deployment) -> None:
    told: list[ClaimedJob] = []
    service = Service("lab")
    gate = asyncio.Event()

    @service.post("/end")
    async def end() -> None:
        await gate.wait()

    worker = await deployment.start_worker(service, on_ended={ENDED: told.append}, drain_seconds=30)
    ticket = await deployment.engine.submit(ENDED)
    await deployment.wait_for_state(ticket, State.PROCESSING)
    await deployment.take_lease_away(ticket)
    gate.set()
    await deployment.stop_worker(worker)
    assert told == []


# Inputs


async def content() -> AsyncIterator[bytes]:
    yield b"what a customer sent"


async def hand_in(deployment: Deployment, how: str) -> Ticket:
    job = new_id()
    engine = deployment.engine
    stored = await store_pieces(engine.blobs, await engine.new_input_key(job), content())
    return await engine.submit_with_input(
        ENDED,
        {"how": how},
        StoredInput(stored.key, stored.size, stored.pieces, stored.sha256),
        job_id=job,
    )


def blobs_in(deployment: Deployment) -> list[Path]:
    return [path for path in (deployment.folder / "blobs").rglob("*") if path.is_file()]


async def record_of(deployment: Deployment, ticket: Ticket) -> InputRecord:
    record = await deployment.engine.input_of(ticket.id)
    assert record is not None
    return record


@pytest.mark.parametrize("how", ["return", "fail"])
async def test_the_worker_deletes_the_input_of_a_job_it_has_ended(
    deployment: Deployment, how: str
) -> None:
    ticket = await hand_in(deployment, how)
    assert blobs_in(deployment)
    async with InputDisposal(deployment.database, deployment.engine.blobs) as disposal:
        worker = await deployment.start_worker(a_service(), on_ended={ENDED: disposal.ended})
        await deployment.wait_for_end(ticket)
        await deployment.stop_worker(worker)
    assert blobs_in(deployment) == []
    record = await record_of(deployment, ticket)
    assert record.complete
    assert [copy.mechanism for copy in record.copies] == [Mechanism.WORKER, Mechanism.END_OF_JOB]


async def test_a_store_that_fails_does_not_show_in_the_job_and_is_left_to_the_upkeep(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = asyncio.Event()
    failing = BlobContainer.open(deployment.settings.blob_url)

    async def delete(_: list[str]) -> None:
        tried.set()
        raise OSError

    monkeypatch.setattr(failing, "delete", delete)
    ticket = await hand_in(deployment, "return")
    async with InputDisposal(deployment.database, failing) as disposal:
        await deployment.start_worker(a_service(), on_ended={ENDED: disposal.ended})
        assert (await deployment.wait_for_end(ticket)).state is State.COMPLETED
        await tried.wait()
    assert not (await record_of(deployment, ticket)).complete
    deployment.start_maintenance()

    async def complete() -> bool:
        return (await record_of(deployment, ticket)).complete

    await eventually_async(complete, "the upkeep has deleted it")
    assert blobs_in(deployment) == []


async def test_more_ended_jobs_than_can_wait_are_left_to_the_upkeep(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_disposal, "JOBS_WAITING_MAX", 2)
    tickets = [await hand_in(deployment, "return") for _ in range(3)]
    async with InputDisposal(deployment.database, deployment.engine.blobs) as disposal:
        told: list[ClaimedJob] = []
        worker = await deployment.start_worker(a_service(), on_ended={ENDED: told.append})
        await deployment.wait_for_ends(tickets)
        await deployment.stop_worker(worker)
        for job in told:
            disposal.ended(job)
    complete = [(await record_of(deployment, ticket)).complete for ticket in tickets]
    assert (complete.count(True), len(blobs_in(deployment))) == (2, 1)
