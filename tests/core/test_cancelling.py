"""Cancelling through the engine: at once while a job waits, by asking while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coatcheck.core import Engine
from coatcheck.core.queries import leases
from coatcheck.db.notifications import CANCEL
from coatcheck.domain.errors import JobAlreadyEnded
from coatcheck.domain.states import State, TransitionEvent
from tests.db.claimer import Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import ENDPOINT
from tests.waiting import eventually_async


@pytest.fixture
async def worker(dsn: str) -> AsyncIterator[Claimer]:
    async with claimer(dsn) as registered:
        yield registered


async def test_a_waiting_job_is_cancelled_at_once(engine: Engine, worker: Claimer) -> None:
    ticket = await engine.submit(ENDPOINT)
    view = await engine.cancel(ticket.id)
    assert (view.state, view.error_code) == (State.CANCELLED, "cancelled")
    assert await worker.claim(1) == []


async def test_a_running_job_is_asked_to_stop(engine: Engine, worker: Claimer) -> None:
    ticket = await engine.submit(ENDPOINT)
    (job,) = await worker.claim(1)
    assert (await engine.cancel(ticket.id)).state is State.CANCEL_REQUESTED
    assert await leases.heartbeat(worker.line, worker.boot) == [ticket.uuid]
    await worker.settle(job, TransitionEvent.ACKNOWLEDGE_CANCEL)
    assert (await engine.get(ticket.id)).state is State.CANCELLED
    assert await leases.heartbeat(worker.line, worker.boot) == []


async def test_its_holder_is_notified(
    engine: Engine, worker: Claimer, connection: AsyncpgConnection
) -> None:
    heard: list[object] = []
    await connection.add_listener(CANCEL, lambda *said: heard.append(said[-1]))
    ticket = await engine.submit(ENDPOINT)
    await worker.claim(1)
    await engine.cancel(ticket.id)

    async def look() -> bool:
        return bool(heard)

    await eventually_async(look, "the holder was told")
    assert heard == [f"{worker.boot}:{ticket.uuid.hex}"]


async def test_asking_twice_changes_nothing(engine: Engine, worker: Claimer) -> None:
    ticket = await engine.submit(ENDPOINT)
    await worker.claim(1)
    first = await engine.cancel(ticket.id)
    second = await engine.cancel(ticket.id)
    assert second == first


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_a_job_that_has_ended_cannot_be_cancelled(
    end: str, engine: Engine, worker: Claimer
) -> None:
    ticket = await engine.submit(ENDPOINT)
    if end == "cancelled":
        await engine.cancel(ticket.id)
    else:
        (job,) = await worker.claim(1)
        await (
            worker.complete(job) if end == "completed" else worker.settle(job, TransitionEvent.FAIL)
        )
    ended = await engine.get(ticket.id)
    with pytest.raises(JobAlreadyEnded, match=f"already ended: {end}"):
        await engine.cancel(ticket.id)
    assert await engine.get(ticket.id) == ended
