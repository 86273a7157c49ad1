"""Nothing stays behind of a job that ended while nobody looked at its work, nor of who looked."""

from __future__ import annotations

import asyncio
from pathlib import Path

from coatcheck.db.connection import Connection
from coatcheck.domain.states import State
from coatcheck.maintenance.remote_poller import Poller, RemoteCleanup
from tests.db.rows import connected, recorded
from tests.remote_calls.render_deployment import SOUND, RenderDeployment, uuid
from tests.remotes.fake_http import FakeHttp
from tests.remotes.fake_replicate import FakeReplicate
from tests.remotes.faults import Status
from tests.waiting import eventually_async


async def test_a_job_cancelled_while_it_waits_to_be_tried_again_leaves_nothing(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id = await deployment.submit()
    remote_id = (await deployment.parked(job_id)).execution_id
    assert remote_id is not None
    # Somebody stored its result, died, and then the remote lost the work.
    await deployment.blobs.put("renders/a.wav", SOUND)
    remote.forget(remote_id)
    for _ in range(3):
        await deployment.calls.cancel(
            "default", uuid(job_id)
        )  # a look, whatever has been looked at
    assert (await deployment.engine.get(job_id)).state is State.RETRYING
    assert await deployment.calls.endings.delete_leftovers(10) == 0
    assert (await deployment.engine.cancel(job_id)).state is State.CANCELLED
    line = Connection(deployment.dsn, name="tests keeper")
    await RemoteCleanup(line, deployment.calls).tick()
    await line.close()
    async with connected(deployment.dsn) as sql:
        assert await sql.fetchval("SELECT count(*) FROM remote_calls") == 0
    assert await deployment.stored() == []


async def test_a_poller_that_stops_lets_go_of_what_it_looks_at(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id = await deployment.submit()
    remote_id = (await deployment.parked(job_id)).execution_id
    assert remote_id is not None
    remote.complete(remote_id, SOUND)
    deployment.result_store.may_end.clear()
    line = Connection(deployment.dsn, name="tests poller")
    poller = Poller(line, deployment.calls)
    poller.start()
    await deployment.result_store.begun.wait()
    await poller.stop()
    await line.close()
    async with connected(deployment.dsn) as sql:
        assert await sql.fetchval("SELECT due_at <= now() AND looker IS NULL FROM remote_calls")
    deployment.result_store.may_end.set()
    await (await deployment.open_remote_calls()).cancel("default", uuid(job_id))
    assert (await deployment.ended(job_id)).state is State.COMPLETED
    assert deployment.result_store.kept == [uuid(job_id)]


async def test_a_search_that_fails_does_not_forget_that_there_may_be_something_to_find(
    dsn: str, tmp_path: Path
) -> None:
    async with (
        FakeReplicate.running() as remote,
        RenderDeployment(dsn, tmp_path, remote) as deployment,
    ):
        assert deployment.to.target is not None
        deployment.to.target["marks"] = {"token": "token"}
        await deployment.start_render_worker(polling=False)
        job_id = await deployment.submit()
        first = (await deployment.parked(job_id)).execution_id
        async with connected(deployment.dsn) as sql:
            # As if the worker had died between the spawn and the moment it was saved.
            remote.faults = [Status(429)]
            await sql.execute(
                "UPDATE remote_calls SET remote_id = NULL, lease = NULL, due_at = NULL"
            )
            await sql.execute(
                recorded(
                    "UPDATE jobs SET state = 'queued', lease = NULL, crashes = 1,"
                    " execution_id = NULL"
                )
            )
            await deployment.wait_for(
                job_id, lambda job: job.unreachables == 1, "the search failed"
            )
            await sql.execute(recorded("UPDATE jobs SET state = 'queued', run_at = now()"))
        assert (await deployment.parked(job_id)).execution_id == first
        assert len(remote.works) == 1


async def test_a_job_that_ended_while_it_was_spawned_has_its_work_stopped(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    reached, go_on = asyncio.Event(), asyncio.Event()
    answer = remote.respond

    async def slowly(call, writer):  # type: ignore[no-untyped-def]
        if call.path.endswith("submit-job"):
            reached.set()
            await go_on.wait()
        await answer(call, writer)

    remote.respond = slowly  # type: ignore[method-assign]
    job_id = await deployment.submit()
    await reached.wait()
    async with connected(deployment.dsn) as sql:
        await sql.execute(
            recorded(
                "UPDATE jobs SET state = 'failed', lease = NULL, payload = NULL,"
                " finished_at = now(), expires_at = now() + interval '1 h', error_code = 'x',"
                " error_message = 'y'"
            )
        )
    go_on.set()

    async def stopped() -> bool:
        return len(remote.cancelled) == 1

    await eventually_async(stopped, "the remote was told to stop")
    assert (await deployment.engine.get(job_id)).state is State.FAILED


async def test_a_job_without_its_remotes_id_fails_when_somebody_looks(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    seen, unseen = await deployment.submit("seen"), await deployment.submit("unseen")
    for job_id in (seen, unseen):
        await deployment.parked(job_id)
    assert await deployment.calls.endings.fail_orphans(10) == 0
    async with connected(deployment.dsn) as sql:
        await sql.execute("DELETE FROM remote_calls")
    await deployment.calls.look("default", uuid(seen))
    assert (await deployment.engine.get(seen)).error_code == "remote_id_missing"
    assert await deployment.calls.endings.fail_orphans(10) == 1
    for job_id in (seen, unseen):
        failed = await deployment.engine.get(job_id)
        assert (failed.state, failed.error_code) == (State.FAILED, "remote_id_missing")
