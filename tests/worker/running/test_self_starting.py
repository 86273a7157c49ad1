"""Jobs that say themselves when they begin: until then they are shown as dispatching."""

from __future__ import annotations

import asyncio

import pytest

from coatcheck import FailJob, Job, Service, State
from coatcheck.worker import worker as agent
from tests.deployment import Deployment
from tests.e2e.faults import history


async def test_a_job_that_starts_itself_is_dispatching_until_it_says_so(
    deployment: Deployment,
) -> None:
    lab = Service("lab")
    gate, end = asyncio.Event(), asyncio.Event()

    @lab.post("/late", starts_itself=True)
    async def late(job: Job) -> str:
        await gate.wait()
        await job.started()
        await job.started()  # saying it twice changes nothing
        await end.wait()
        return "done"

    @lab.post("/usual")
    async def usual() -> str:
        await end.wait()
        return "done"

    await deployment.start_worker(lab)
    first = await deployment.engine.submit("lab.post__late")
    held = await deployment.wait_for_state(first, State.DISPATCHING)
    # Whoever marks the second as started has passed over the first.
    second = await deployment.engine.submit("lab.post__usual")
    marked = await deployment.wait_for_state(second, State.PROCESSING)
    assert await deployment.state(first) is State.DISPATCHING

    gate.set()
    view = await deployment.wait_for_state(first, State.PROCESSING)
    assert view.started_at is not None
    assert marked.started_at is not None
    assert held.dispatched_at is not None
    assert view.started_at > marked.started_at > held.dispatched_at
    end.set()
    assert (await deployment.wait_for_end(first)).state is State.COMPLETED


async def test_a_start_that_was_said_is_shown_without_waiting_for_the_next_look(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Service("lab")
    end = asyncio.Event()

    @lab.post("/late", starts_itself=True)
    async def late(job: Job) -> str:
        job.started()
        await end.wait()
        return "done"

    monkeypatch.setattr(agent, "WATCH_SECONDS", 3_600.0)
    await deployment.start_worker(lab)
    ticket = await deployment.engine.submit("lab.post__late")
    await deployment.wait_for_state(ticket, State.PROCESSING)
    monkeypatch.undo()
    end.set()
    await deployment.wait_for_end(ticket)


async def test_a_job_may_end_without_ever_having_said_that_it_began(deployment: Deployment) -> None:
    lab = Service("lab")

    @lab.post("/short", starts_itself=True)
    async def short() -> str:
        return "done"

    await deployment.start_worker(lab)
    view = await deployment.wait_for_end(await deployment.engine.submit("lab.post__short"))
    assert view.state is State.COMPLETED
    assert view.started_at is not None


async def test_a_job_that_fails_right_after_it_began_was_shown_as_processing(
    deployment: Deployment,
) -> None:
    lab = Service("lab")

    @lab.post("/refused", starts_itself=True)
    async def refused(job: Job) -> None:
        job.started()
        raise FailJob("not like this")

    await history.keep(deployment.sql)
    await deployment.start_worker(lab)
    view = await deployment.wait_for_end(await deployment.engine.submit("lab.post__refused"))
    assert view.state is State.FAILED
    states = [step.after for step in await history.read(deployment.sql)]
    assert states == [State.QUEUED, State.DISPATCHING, State.PROCESSING, State.FAILED]


async def test_a_job_that_never_begins_is_stopped_at_its_timeout(deployment: Deployment) -> None:
    lab = Service("lab")

    @lab.post("/stuck", starts_itself=True, timeout=0.2)
    async def stuck() -> None:
        await asyncio.Event().wait()

    await deployment.start_worker(lab)
    view = await deployment.wait_for_end(
        await deployment.engine.submit("lab.post__stuck", retries=0)
    )
    assert view.state is State.FAILED
    assert view.error_message is not None
    assert "timed_out" in view.error_message


@pytest.mark.parametrize("obeys", [True, False], ids=["that obeys", "that is interrupted"])
async def test_a_job_that_has_not_begun_can_be_cancelled(
    obeys: bool, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "CANCEL_GRACE_SECONDS", 60.0 if obeys else 0.0)
    lab = Service("lab")

    @lab.post("/waiting", starts_itself=True)
    async def waiting(job: Job) -> None:
        if obeys:
            await job.wait_cancelled()
            job.check_cancelled()
        await asyncio.Event().wait()

    await deployment.start_worker(lab)
    ticket = await deployment.engine.submit("lab.post__waiting")
    await deployment.wait_for_state(ticket, State.DISPATCHING)
    await deployment.engine.cancel(ticket.id)
    assert (await deployment.wait_for_end(ticket)).state is State.CANCELLED


async def test_a_drain_gives_a_job_back_that_has_not_begun(deployment: Deployment) -> None:
    lab = Service("lab")

    @lab.post("/waiting", starts_itself=True)
    async def waiting() -> None:
        await asyncio.Event().wait()

    worker = await deployment.start_worker(lab)
    ticket = await deployment.engine.submit("lab.post__waiting")
    await deployment.wait_for_state(ticket, State.DISPATCHING)
    await deployment.stop_worker(worker)
    view = await deployment.engine.get(ticket.id)
    assert (view.state, view.interruptions, view.attempts) == (State.QUEUED, 1, 0)


async def test_saying_it_in_any_other_endpoint_changes_nothing(deployment: Deployment) -> None:
    lab = Service("lab")

    @lab.post("/usual")
    async def usual(job: Job) -> str:
        await job.started()
        return "done"

    await deployment.start_worker(lab)
    view = await deployment.wait_for_end(await deployment.engine.submit("lab.post__usual"))
    assert view.state is State.COMPLETED


@pytest.mark.parametrize("isolated", [True, False])
def test_only_an_async_function_of_the_worker_s_own_process_can_start_itself(
    isolated: bool,
) -> None:
    with pytest.raises(ValueError, match="async function that is not isolated"):
        Service("lab").post("/plain", starts_itself=True, isolated=isolated)(plain)


def plain(job: Job) -> None:
    job.started()
