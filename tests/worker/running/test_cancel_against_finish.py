"""Cancel and finish meet at the job's row. Whoever comes first wins, and there is one end.

The test holds the row and lets the rivals queue up behind it, seen blocked one after the other:
PostgreSQL then serves them in that order.
"""

from __future__ import annotations

import asyncio

import pytest

from coatcheck import Job, JobAlreadyEnded, JobView, Service, State, Ticket
from tests.deployment import Deployment

EXCHANGE = "coatcheck worker exchange"
CANCEL = "coatcheck pool"


async def test_a_cancel_that_comes_after_the_finish_finds_the_job_ended(
    deployment: Deployment,
) -> None:
    gate, ticket = await _processing(deployment)
    async with deployment.sql.transaction():
        await _hold(deployment, ticket)
        gate.set()
        await deployment.wait_until_blocked(EXCHANGE)
        cancelling = asyncio.create_task(deployment.engine.cancel(ticket.id))
        await deployment.wait_until_blocked(CANCEL)
    with pytest.raises(JobAlreadyEnded):
        await cancelling

    view = await deployment.wait_for_end(ticket)
    assert (view.state, view.result) == (State.COMPLETED, b'"finished"')


async def test_a_finish_that_comes_after_the_cancel_keeps_its_result(
    deployment: Deployment,
) -> None:
    gate, ticket = await _processing(deployment)
    async with deployment.sql.transaction():
        await _hold(deployment, ticket)
        cancelling = asyncio.create_task(deployment.engine.cancel(ticket.id))
        await deployment.wait_until_blocked(CANCEL)
        gate.set()
        await deployment.wait_until_blocked(EXCHANGE)
    asked: JobView = await cancelling

    view = await deployment.wait_for_end(ticket)
    assert asked.state in (State.CANCEL_REQUESTED, State.COMPLETED)
    assert (view.state, view.result, view.error_code) == (State.COMPLETED, b'"finished"', None)


async def test_a_cancel_that_comes_after_a_failed_attempt_ends_the_waiting_job(
    deployment: Deployment,
) -> None:
    gate, ticket = await _processing(deployment, fail=True)
    async with deployment.sql.transaction():
        await _hold(deployment, ticket)
        gate.set()
        await deployment.wait_until_blocked(EXCHANGE)
        cancelling = asyncio.create_task(deployment.engine.cancel(ticket.id))
        await deployment.wait_until_blocked(CANCEL)
    assert (await cancelling).state is State.CANCELLED

    view = await deployment.wait_for_end(ticket)
    assert (view.state, view.failures) == (State.CANCELLED, 1)


async def test_an_attempt_that_fails_after_the_cancel_is_not_tried_again(
    deployment: Deployment,
) -> None:
    gate, ticket = await _processing(deployment, fail=True)
    async with deployment.sql.transaction():
        await _hold(deployment, ticket)
        cancelling = asyncio.create_task(deployment.engine.cancel(ticket.id))
        await deployment.wait_until_blocked(CANCEL)
        gate.set()
        await deployment.wait_until_blocked(EXCHANGE)
    await cancelling

    assert (await deployment.wait_for_end(ticket)).state is State.CANCELLED


async def _processing(
    deployment: Deployment, *, fail: bool = False
) -> tuple[asyncio.Event, Ticket]:
    """A job whose handler waits for the gate, shown as processing: nothing else is unwritten."""
    service = Service("lab")
    gate = asyncio.Event()

    @service.post("/wait")
    async def wait(job: Job) -> str:
        await gate.wait()
        if fail:
            raise LookupError
        return "finished"

    await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__wait")
    await deployment.wait_for_state(ticket, State.PROCESSING)
    return gate, ticket


async def _hold(deployment: Deployment, ticket: Ticket) -> None:
    await deployment.sql.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", ticket.uuid)
