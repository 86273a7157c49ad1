"""Who dies, or falls silent, on the way is taken over from, and does no harm when it comes back."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from msgspec.structs import replace

from coatcheck.core.queries import maintenance, remote_calls
from coatcheck.db.connection import Connection
from coatcheck.domain.states import State
from tests.db.rows import connected, recorded
from tests.remote_calls.render_deployment import SOUND, RenderDeployment, uuid
from tests.remotes.fake_http import FakeHttp
from tests.waiting import eventually_async


async def test_a_finalizer_that_fell_silent_is_taken_over_and_its_late_word_refused(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id = await deployment.submit()
    remote_id = (await deployment.parked(job_id)).execution_id
    assert remote_id is not None
    remote.complete(remote_id, SOUND)
    deployment.result_store.may_end.clear()

    async def begun() -> bool:
        await asyncio.wait(
            [asyncio.create_task(deployment.calls.look("default", uuid(job_id)))], timeout=0.05
        )
        return deployment.result_store.begun.is_set()

    await eventually_async(begun, "somebody finalizes")
    async with connected(deployment.dsn) as sql:
        await sql.execute("UPDATE remote_calls SET due_at = now()")
    successor = await deployment.open_remote_calls()
    deployment.result_store.begun.clear()
    taking = asyncio.create_task(successor.look("default", uuid(job_id)))
    await deployment.result_store.begun.wait()
    deployment.result_store.may_end.set()
    await taking

    async def both() -> bool:
        return len(deployment.result_store.kept) == 2

    await eventually_async(both, "both stored the result")
    done = await deployment.ended(job_id)
    assert done.state is State.COMPLETED
    assert await deployment.stored() == ["renders/a.wav"]
    (artifact,) = await deployment.engine.artifacts(job_id)
    assert await deployment.blobs.get(artifact.blob_key) == SOUND


async def test_who_slept_after_its_look_does_not_finalize_beside_another(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id = await deployment.submit()
    await deployment.parked(job_id)
    line = Connection(deployment.dsn, name="tests finalizing")

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
    assert await remote_calls.renew(line, replace(other, lease=lease), 60.0)
    await line.close()


async def test_neither_the_rescuer_nor_the_deadline_takes_what_is_parked(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id = await deployment.submit()
    parked = await deployment.parked(job_id)
    line = Connection(deployment.dsn, name="tests upkeep")
    async with connected(deployment.dsn) as sql:
        await sql.execute("UPDATE jobs SET run_deadline = now() - interval '1 h'")
    rescued = await maintenance.rescue(line, crashes_max=3, keep_failed_seconds=60, rows_max=10)
    overrun = await maintenance.fail_overrun(
        line, slack_seconds=1, keep_failed_seconds=60, rows_max=10
    )
    await line.close()
    assert (rescued, overrun) == ([], [])
    assert (await deployment.engine.get(job_id)).execution_id == parked.execution_id
    assert await deployment.engine.stall_reason(await deployment.engine.get(job_id)) is None


async def test_what_is_left_of_a_job_that_ended_otherwise_is_cleared_away(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id = await deployment.submit()
    await deployment.parked(job_id)
    await deployment.blobs.put("renders/a.wav", b"half of it")
    async with connected(deployment.dsn) as sql:
        # As if whoever ended it had died before it cleaned up.
        await sql.execute(
            recorded(
                "UPDATE jobs SET state = 'failed', lease = NULL, payload = NULL,"
                " finished_at = now(), expires_at = now() + interval '1 h', error_code = 'x',"
                " error_message = 'y'"
            )
        )
        await sql.execute(
            "UPDATE remote_calls SET due_at = now(), looked_at = NULL,"
            " spawned_at = now() - interval '1 h'"
        )
        await deployment.calls.look("default", uuid(job_id))
        assert await sql.fetchval("SELECT count(*) FROM remote_calls") == 0
    assert await deployment.stored() == []
