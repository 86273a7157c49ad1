"""Cancelling what runs elsewhere, and what becomes of results that come too late."""

from __future__ import annotations

import asyncio

from coatcheck.domain.states import State
from tests.remote_calls.render_deployment import SOUND, RenderDeployment, uuid
from tests.remotes.fake_http import FakeHttp
from tests.remotes.faults import Status


async def spawned(deployment: RenderDeployment) -> tuple[str, str]:
    job_id = await deployment.submit()
    remote_id = (await deployment.parked(job_id)).execution_id
    assert remote_id is not None
    return job_id, remote_id


async def test_the_remote_is_told_and_the_job_is_cancelled(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id, remote_id = await spawned(deployment)
    assert (await deployment.engine.cancel(job_id)).state is State.CANCEL_REQUESTED
    await deployment.calls.cancel("default", uuid(job_id))
    assert (await deployment.engine.get(job_id)).state is State.CANCELLED
    assert remote.cancelled == [remote_id]


async def test_the_poller_does_it_if_nobody_else_does(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker()
    job_id, remote_id = await spawned(deployment)
    await deployment.engine.cancel(job_id)
    assert (await deployment.ended(job_id)).state is State.CANCELLED
    assert remote.cancelled == [remote_id]


async def test_a_remote_that_will_not_hear_of_it_does_not_keep_the_job(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id, _ = await spawned(deployment)
    remote.faults = [Status(500)]
    await deployment.engine.cancel(job_id)
    await deployment.calls.cancel("default", uuid(job_id))
    assert (await deployment.engine.get(job_id)).state is State.CANCELLED


async def test_a_result_that_is_being_stored_meanwhile_is_discarded(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id, remote_id = await spawned(deployment)
    remote.complete(remote_id, SOUND)
    deployment.result_store.may_end.clear()
    looking = asyncio.create_task(deployment.calls.look("default", uuid(job_id)))
    while not deployment.result_store.begun.is_set():
        await asyncio.wait([looking], timeout=0.05)
        if looking.done():  # somebody looked a moment ago
            looking = asyncio.create_task(deployment.calls.look("default", uuid(job_id)))
    assert (await deployment.engine.get(job_id)).state is State.FINALIZING
    await deployment.engine.cancel(job_id)
    canceller = await deployment.open_remote_calls()
    await canceller.cancel("default", uuid(job_id))
    assert (await deployment.engine.get(job_id)).state is State.CANCELLED
    deployment.result_store.may_end.set()
    await looking
    assert deployment.result_store.kept == [uuid(job_id)]
    assert (await deployment.engine.get(job_id)).state is State.CANCELLED
    assert await deployment.stored() == []
    assert list(await deployment.engine.artifacts(job_id)) == []
