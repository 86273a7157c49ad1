"""Cancelling what runs elsewhere, and what becomes of results that come too late."""

from __future__ import annotations

import asyncio

from coatcheck.domain.states import State
from tests.remote_calls.bureau import SOUND, Bureau, uuid
from tests.remotes.fake_http import FakeHttp
from tests.remotes.faults import Status


async def spawned(bureau: Bureau) -> tuple[str, str]:
    job_id = await bureau.hand_in()
    remote_id = (await bureau.parked(job_id)).execution_id
    assert remote_id is not None
    return job_id, remote_id


async def test_the_remote_is_told_and_the_job_is_cancelled(
    bureau: Bureau, remote: FakeHttp
) -> None:
    await bureau.work(polling=False)
    job_id, remote_id = await spawned(bureau)
    assert (await bureau.engine.cancel(job_id)).state is State.CANCEL_REQUESTED
    await bureau.calls.cancel("default", uuid(job_id))
    assert (await bureau.engine.get(job_id)).state is State.CANCELLED
    assert remote.cancelled == [remote_id]


async def test_the_poller_does_it_if_nobody_else_does(bureau: Bureau, remote: FakeHttp) -> None:
    await bureau.work()
    job_id, remote_id = await spawned(bureau)
    await bureau.engine.cancel(job_id)
    assert (await bureau.ended(job_id)).state is State.CANCELLED
    assert remote.cancelled == [remote_id]


async def test_a_remote_that_will_not_hear_of_it_does_not_keep_the_job(
    bureau: Bureau, remote: FakeHttp
) -> None:
    await bureau.work(polling=False)
    job_id, _ = await spawned(bureau)
    remote.faults = [Status(500)]
    await bureau.engine.cancel(job_id)
    await bureau.calls.cancel("default", uuid(job_id))
    assert (await bureau.engine.get(job_id)).state is State.CANCELLED


async def test_a_result_that_is_being_stored_meanwhile_is_discarded(
    bureau: Bureau, remote: FakeHttp
) -> None:
    await bureau.work(polling=False)
    job_id, remote_id = await spawned(bureau)
    remote.complete(remote_id, SOUND)
    bureau.keeper.may_end.clear()
    looking = asyncio.create_task(bureau.calls.look("default", uuid(job_id)))
    while not bureau.keeper.begun.is_set():
        await asyncio.wait([looking], timeout=0.05)
        if looking.done():  # somebody looked a moment ago
            looking = asyncio.create_task(bureau.calls.look("default", uuid(job_id)))
    assert (await bureau.engine.get(job_id)).state is State.FINALIZING
    await bureau.engine.cancel(job_id)
    canceller = await bureau.another_desk()
    await canceller.cancel("default", uuid(job_id))
    assert (await bureau.engine.get(job_id)).state is State.CANCELLED
    bureau.keeper.may_end.set()
    await looking
    assert bureau.keeper.kept == [uuid(job_id)]
    assert (await bureau.engine.get(job_id)).state is State.CANCELLED
    assert await bureau.stored() == []
    assert list(await bureau.engine.artifacts(job_id)) == []
