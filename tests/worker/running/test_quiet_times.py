"""A worker that knows of nothing to do claims the job that a notification names (docs/adr/0062)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NoReturn

import pytest

from coatcheck import FailJob, Job, Service, State
from coatcheck.core.ready_notification import NamedJob, listing, named_job, naming
from coatcheck.core.submission import Preparer, Submission
from coatcheck.db.database import Database
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import DEFAULT_POLICIES, Lane
from coatcheck.domain.limits import RESULT_INLINE_BYTES_MAX
from coatcheck.worker.exchange_loop import ExchangeLoop, PollInterval
from coatcheck.worker.lease import LeaseRenewer
from coatcheck.worker.slots import SlotPool
from tests.db.rows import ENDPOINT, connected, put_job
from tests.deployment import Deployment, lane_slots
from tests.waiting import LOOK_SECONDS, until_true

AN_HOUR: Final = 3_600.0


async def work() -> None:
    """The handler of the endpoint."""


def fail(*_: object) -> NoReturn:
    raise AssertionError("this does not happen here")


@asynccontextmanager
async def idle_loop(
    dsn: str, claimed: list[ClaimedJob], poll_seconds: float
) -> AsyncIterator[ExchangeLoop]:
    """A loop that runs, and has found that nothing waits."""
    service = Service("demo")
    service.post("/work")(work)
    async with Database.of_engine(dsn) as database:
        renewer = LeaseRenewer(
            database.heartbeat,
            database.heartbeat,
            DEFAULT_POLICIES,
            name="test",
            version="0",
            endpoints=[],
            on_cancel=fail,
            on_lost=fail,
            on_held_again=fail,
            recording_failed_for=float,
        )
        await renewer.register()
        exchange = ExchangeLoop(
            database.exchange,
            database.claim,
            renewer,
            database.notifier,
            {Lane.STANDARD: SlotPool(100, fail)},
            {each.name: each for each in service.endpoints.values()},
            PollInterval(poll_seconds, poll_seconds),
            keep_completed_seconds=60,
            keep_failed_seconds=60,
            accept=claimed.extend,
            on_ended={},
        )
        await exchange.serve_once()
        assert not claimed
        running = asyncio.create_task(exchange.run())
        try:
            yield exchange
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def named(job: ClaimedJob) -> NamedJob:
    return NamedJob(job.org, job.uuid, job.lane.value, job.endpoint)


async def test_a_named_job_is_claimed_alone(dsn: str) -> None:
    """What nobody announced is found by a look, and not by a claim of one job."""
    claimed: list[ClaimedJob] = []
    async with connected(dsn) as connection, idle_loop(dsn, claimed, AN_HOUR) as exchange:
        unannounced = await put_job(connection, flow="another")
        job = await put_job(connection)
        exchange.look_for_job(named(job))
        await until_true(lambda: bool(claimed), "the named job is claimed")
        assert [each.uuid for each in claimed] == [job.uuid]
        exchange.look_for_work()
        await until_true(lambda: len(claimed) == 2, "the other one is claimed, too")
        assert claimed[1].uuid == unannounced.uuid


@pytest.mark.parametrize("columns", [{"webhook": 1}, {"lane": "standard", "flow": "a"}])
async def test_a_named_job_that_takes_more_than_a_claim_by_name_is_looked_for(
    columns: dict[str, object], dsn: str
) -> None:
    claimed: list[ClaimedJob] = []
    async with connected(dsn) as connection, idle_loop(dsn, claimed, AN_HOUR) as exchange:
        before = await put_job(connection, flow="a")
        job = await put_job(connection, **columns)
        exchange.look_for_job(named(job))
        await until_true(lambda: len(claimed) == 2, "both are claimed")
        assert {each.uuid for each in claimed} == {before.uuid, job.uuid}


async def test_two_jobs_that_are_named_at_once_are_both_claimed(dsn: str) -> None:
    claimed: list[ClaimedJob] = []
    async with connected(dsn) as connection, idle_loop(dsn, claimed, AN_HOUR) as exchange:
        jobs = [await put_job(connection, flow=str(number)) for number in range(3)]
        for job in jobs:
            exchange.look_for_job(named(job))
        await until_true(lambda: len(claimed) == 3, "all are claimed")
        assert {each.uuid for each in claimed} == {job.uuid for job in jobs}


async def test_a_job_that_nobody_announced_is_found_however_many_are_named(dsn: str) -> None:
    claimed: list[ClaimedJob] = []
    async with connected(dsn) as connection, idle_loop(dsn, claimed, 0.2) as exchange:
        unannounced = await put_job(connection, flow="another")
        number = 0
        while unannounced.uuid not in {job.uuid for job in claimed}:
            job = await put_job(connection, flow=str(number))
            exchange.look_for_job(named(job))
            await until_true(
                lambda job=job: job.uuid in {each.uuid for each in claimed},  # type: ignore[misc]
                "the named job is claimed",
            )
            number += 1


@pytest.mark.parametrize(
    ("org", "endpoint"), [("acme", ENDPOINT), ('a "b", c', "[1, 2]"), ("x\x01\\", "a,b")]
)
def test_a_notification_names_any_job(org: str, endpoint: str) -> None:
    job = Preparer({}, DEFAULT_POLICIES).prepare(Submission(endpoint, org=org, lane="bulk"))
    assert named_job(naming(job)) == NamedJob(org, job.uuid, "bulk", endpoint)


def test_a_notification_of_endpoints_names_no_job() -> None:
    for endpoints in (["a.b", "c"], ["[1, 2]"], ["["], [""]):
        assert named_job(listing(endpoints)) is None
    assert naming(Preparer({}, DEFAULT_POLICIES).prepare(Submission("ä.post__b"))) == ""


async def test_a_job_that_is_named_while_its_lane_is_full_runs_when_there_is_room(
    deployment: Deployment,
) -> None:
    lab = Service("lab")
    may_end = asyncio.Event()

    @lab.post("/wait")
    async def wait() -> None:
        await may_end.wait()

    await deployment.start_worker(lab, lane_concurrency=lane_slots(standard=1))
    first = await deployment.engine.submit("lab.post__wait")
    await deployment.wait_for_state(first, State.PROCESSING)
    second = await deployment.engine.submit("lab.post__wait")
    may_end.set()
    for view in await deployment.wait_for_ends([first, second]):
        assert view.state is State.COMPLETED


@pytest.mark.parametrize("length", [1, RESULT_INLINE_BYTES_MAX, 3_000_000])
async def test_a_waiter_gets_every_result(length: int, deployment: Deployment) -> None:
    lab = Service("lab")

    @lab.post("/write")
    async def write(number: int) -> str:
        return f"{number:{length}}"

    await deployment.start_worker(lab)
    for number in range(5):
        ticket = await deployment.engine.submit("lab.post__write", {"number": number})
        view = await deployment.engine.wait(ticket.id)
        assert view.state is State.COMPLETED
        assert view.result == b'"%*d"' % (length, number)


async def test_a_waiter_sees_every_other_end(deployment: Deployment) -> None:
    lab = Service("lab")
    begun: asyncio.Queue[str] = asyncio.Queue()

    @lab.post("/fail")
    async def fail_for_good() -> None:
        raise FailJob("no")

    @lab.post("/wait")
    async def wait(job: Job) -> None:
        begun.put_nowait(job.id)
        while not job.cancel_requested:
            await asyncio.sleep(LOOK_SECONDS)
        job.check_cancelled()

    await deployment.start_worker(lab)
    for _ in range(3):
        ticket = await deployment.engine.submit("lab.post__fail")
        assert (await deployment.engine.wait(ticket.id)).state is State.FAILED
        ticket = await deployment.engine.submit("lab.post__wait")
        assert await begun.get() == ticket.id
        waiting = asyncio.create_task(deployment.engine.wait(ticket.id))
        await deployment.engine.cancel(ticket.id)
        assert (await waiting).state is State.CANCELLED
