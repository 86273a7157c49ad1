"""Who dies, or falls silent, on the way is taken over from, and does no harm when it comes back."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from coatcheck.core.queries import maintenance, remote_calls
from coatcheck.db.connection import Connection
from coatcheck.domain.states import State
from tests.db.rows import connected
from tests.remote_calls.bureau import SOUND, Bureau, uuid
from tests.remotes.fake_http import FakeHttp
from tests.waiting import eventually_async


async def test_a_finalizer_that_fell_silent_is_taken_over_and_its_late_word_refused(
    bureau: Bureau, remote: FakeHttp
) -> None:
    await bureau.work(polling=False)
    job_id = await bureau.hand_in()
    remote_id = (await bureau.parked(job_id)).execution_id
    assert remote_id is not None
    remote.complete(remote_id, SOUND)
    bureau.keeper.may_end.clear()

    async def begun() -> bool:
        await asyncio.wait(
            [asyncio.create_task(bureau.calls.look("default", uuid(job_id)))], timeout=0.05
        )
        return bureau.keeper.begun.is_set()

    await eventually_async(begun, "somebody finalizes")
    async with connected(bureau.dsn) as sql:
        await sql.execute("UPDATE remote_calls SET due_at = now()")
    successor = await bureau.another_desk()
    bureau.keeper.begun.clear()
    taking = asyncio.create_task(successor.look("default", uuid(job_id)))
    await bureau.keeper.begun.wait()
    bureau.keeper.may_end.set()
    await taking

    async def both() -> bool:
        return len(bureau.keeper.kept) == 2

    await eventually_async(both, "both stored the result")
    done = await bureau.ended(job_id)
    assert done.state is State.COMPLETED
    assert await bureau.stored() == ["renders/a.wav"]
    (artifact,) = await bureau.engine.artifacts(job_id)
    assert await bureau.blobs.get(artifact.blob_key) == SOUND


async def test_who_slept_after_its_look_does_not_finalize_beside_another(
    bureau: Bureau, remote: FakeHttp
) -> None:
    await bureau.work(polling=False)
    job_id = await bureau.hand_in()
    await bureau.parked(job_id)
    line = Connection(bureau.dsn, name="tests finalizing")

    async def looked(seconds: float) -> remote_calls.ClaimedCall:
        call = await remote_calls.claim_one(
            line, "default", uuid(job_id), seconds=seconds, moment=0.0, looker=uuid4()
        )
        assert call is not None
        return call

    sleeper = await looked(seconds=0.0)  # whose hold is over at once
    other = await looked(seconds=60.0)
    lease = await remote_calls.finalize(line, other, 60.0)
    assert lease is not None
    assert await remote_calls.finalize(line, sleeper, 60.0) is None
    assert await remote_calls.renew(line, other, lease, 60.0)
    await line.close()


async def test_neither_the_rescuer_nor_the_deadline_takes_what_is_parked(
    bureau: Bureau, remote: FakeHttp
) -> None:
    await bureau.work(polling=False)
    job_id = await bureau.hand_in()
    parked = await bureau.parked(job_id)
    line = Connection(bureau.dsn, name="tests upkeep")
    async with connected(bureau.dsn) as sql:
        await sql.execute("UPDATE jobs SET run_deadline = now() - interval '1 h'")
    rescued = await maintenance.rescue(line, crashes_max=3, keep_failed_seconds=60, rows_max=10)
    overrun = await maintenance.fail_overrun(
        line, slack_seconds=1, keep_failed_seconds=60, rows_max=10
    )
    await line.close()
    assert (rescued, overrun) == ([], [])
    assert (await bureau.engine.get(job_id)).execution_id == parked.execution_id
    assert await bureau.engine.stall_reason(await bureau.engine.get(job_id)) is None


async def test_what_is_left_of_a_job_that_ended_otherwise_is_cleared_away(
    bureau: Bureau, remote: FakeHttp
) -> None:
    await bureau.work(polling=False)
    job_id = await bureau.hand_in()
    await bureau.parked(job_id)
    await bureau.blobs.put("renders/a.wav", b"half of it")
    async with connected(bureau.dsn) as sql:
        # As if whoever ended it had died before it cleaned up.
        await sql.execute(
            "UPDATE jobs SET state = 'failed', lease = NULL, payload = NULL, finished_at = now(),"
            " expires_at = now() + interval '1 h', error_code = 'x', error_message = 'y'"
        )
        await sql.execute(
            "UPDATE remote_calls SET due_at = now(), looked_at = NULL,"
            " spawned_at = now() - interval '1 h'"
        )
        await bureau.calls.look("default", uuid(job_id))
        assert await sql.fetchval("SELECT count(*) FROM remote_calls") == 0
    assert await bureau.stored() == []
