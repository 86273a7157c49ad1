"""A worker deletes the claims of which it has recorded every job."""

from __future__ import annotations

import asyncio

from coatcheck import Service
from coatcheck.core.queries import leases
from coatcheck.domain.errors import FailJob
from coatcheck.domain.states import State
from tests.deployment import Deployment
from tests.waiting import eventually_async, until_true


class Handlers:
    def __init__(self) -> None:
        self.service = Service("lab")
        self.may_end = asyncio.Event()
        self.waiting = 0

        @self.service.post("/greet")
        async def greet() -> str:
            return "hello"

        @self.service.post("/fail")
        async def fail() -> None:
            raise FailJob("no")

        @self.service.post("/wait")
        async def wait() -> None:
            self.waiting += 1
            await self.may_end.wait()


async def no_claim_is_left(deployment: Deployment) -> None:
    async def look() -> bool:
        return await deployment.sql.fetchval("SELECT count(*) FROM claims") == 0

    await eventually_async(look, "no row of claims is left")


async def test_claims_go_with_the_last_of_their_jobs(deployment: Deployment) -> None:
    """There is no sweep: no maintenance runs."""
    handlers = Handlers()
    tickets = [
        await deployment.engine.submit(f"lab.post__{name}", retries=0)
        for name in ("greet", "fail", "wait", "greet")
    ]
    await deployment.start_worker(handlers.service)
    await deployment.wait_for_ends([tickets[0], tickets[1], tickets[3]])
    await until_true(lambda: handlers.waiting == 1, "one waits")
    held = await deployment.sql.fetchval(
        "SELECT count(*) FROM jobs AS j JOIN claims AS k ON k.org_id = j.org_id"
        " AND k.lease = j.lease AND j.id = ANY (k.ids) WHERE j.id = $1",
        tickets[2].uuid,
    )
    assert held == 1
    handlers.may_end.set()
    await deployment.wait_for_ends(tickets)
    await no_claim_is_left(deployment)


async def test_a_worker_that_ends_leaves_no_claims(deployment: Deployment) -> None:
    handlers = Handlers()
    worker = await deployment.start_worker(handlers.service)
    ticket = await deployment.engine.submit("lab.post__wait")
    await until_true(lambda: handlers.waiting == 1, "it waits")
    worker.stop()
    handlers.may_end.set()
    await deployment.worker_ended(worker)
    assert await deployment.state(ticket) is State.COMPLETED
    await no_claim_is_left(deployment)


async def test_the_sweep_deletes_what_a_refused_result_leaves(deployment: Deployment) -> None:
    """That a result is refused does not prove that the job has another holder."""
    handlers = Handlers()
    worker = await deployment.start_worker(handlers.service)
    ticket = await deployment.engine.submit("lab.post__wait", retries=0)
    await until_true(lambda: handlers.waiting == 1, "it waits")
    (held,) = await leases.held_jobs(deployment.database.read, worker.boot)
    await deployment.take_lease_away(ticket)
    handlers.may_end.set()
    await until_true(lambda: worker.rejected == 1, "its result is refused")
    assert await deployment.sql.fetchval("SELECT lease FROM claims") == held.lease
    deployment.start_maintenance()
    await no_claim_is_left(deployment)
