"""Cancel and finish meet at the job's row. Whoever comes first wins, and there is one end.

The test holds the row and lets the rivals queue up behind it, seen blocked one after the other:
PostgreSQL then serves them in that order.
"""

from __future__ import annotations

import asyncio

import pytest

from coatcheck import Job, JobAlreadyEnded, JobView, Service, State, Ticket
from tests.worker.workshop import Workshop

EXCHANGE = "coatcheck worker exchange"
CANCEL = "coatcheck events and cancel"


async def test_a_cancel_that_comes_after_the_finish_finds_the_job_ended(workshop: Workshop) -> None:
    gate, ticket = await _processing(workshop)
    async with workshop.sql.transaction():
        await _hold(workshop, ticket)
        gate.set()
        await workshop.seen_waiting(EXCHANGE)
        cancelling = asyncio.create_task(workshop.engine.cancel(ticket.id))
        await workshop.seen_waiting(CANCEL)
    with pytest.raises(JobAlreadyEnded):
        await cancelling

    view = await workshop.end_of(ticket)
    assert (view.state, view.result) == (State.COMPLETED, b'"finished"')


async def test_a_finish_that_comes_after_the_cancel_keeps_its_result(workshop: Workshop) -> None:
    gate, ticket = await _processing(workshop)
    async with workshop.sql.transaction():
        await _hold(workshop, ticket)
        cancelling = asyncio.create_task(workshop.engine.cancel(ticket.id))
        await workshop.seen_waiting(CANCEL)
        gate.set()
        await workshop.seen_waiting(EXCHANGE)
    asked: JobView = await cancelling

    view = await workshop.end_of(ticket)
    assert asked.state in (State.CANCEL_REQUESTED, State.COMPLETED)
    assert (view.state, view.result, view.error_code) == (State.COMPLETED, b'"finished"', None)


async def test_a_cancel_that_comes_after_a_failed_attempt_ends_the_waiting_job(
    workshop: Workshop,
) -> None:
    gate, ticket = await _processing(workshop, fail=True)
    async with workshop.sql.transaction():
        await _hold(workshop, ticket)
        gate.set()
        await workshop.seen_waiting(EXCHANGE)
        cancelling = asyncio.create_task(workshop.engine.cancel(ticket.id))
        await workshop.seen_waiting(CANCEL)
    assert (await cancelling).state is State.CANCELLED

    view = await workshop.end_of(ticket)
    assert (view.state, view.failures) == (State.CANCELLED, 1)


async def test_an_attempt_that_fails_after_the_cancel_is_not_tried_again(
    workshop: Workshop,
) -> None:
    gate, ticket = await _processing(workshop, fail=True)
    async with workshop.sql.transaction():
        await _hold(workshop, ticket)
        cancelling = asyncio.create_task(workshop.engine.cancel(ticket.id))
        await workshop.seen_waiting(CANCEL)
        gate.set()
        await workshop.seen_waiting(EXCHANGE)
    await cancelling

    assert (await workshop.end_of(ticket)).state is State.CANCELLED


async def _processing(workshop: Workshop, *, fail: bool = False) -> tuple[asyncio.Event, Ticket]:
    """A job whose handler waits for the gate, shown as processing: nothing else is unwritten."""
    service = Service("lab")
    gate = asyncio.Event()

    @service.post("/wait")
    async def wait(job: Job) -> str:
        await gate.wait()
        if fail:
            raise LookupError
        return "finished"

    await workshop.start_worker(service)
    ticket = await workshop.engine.submit("lab.post__wait")
    await workshop.until_state(ticket, State.PROCESSING)
    return gate, ticket


async def _hold(workshop: Workshop, ticket: Ticket) -> None:
    await workshop.sql.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", ticket.uuid)
