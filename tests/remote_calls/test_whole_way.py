"""From the hand-in to the file: a job that is done elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path

from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from tests.db.rows import connected
from tests.remote_calls.render_deployment import SOUND, RenderDeployment, uuid
from tests.remotes.fake_http import FakeHttp

ONE_SLOT = dict.fromkeys(Lane, 1)


async def test_it_is_spawned_parked_and_finalized_with_its_file(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker()
    job_id = await deployment.submit()
    waiting = await deployment.parked(job_id)
    assert (waiting.state, waiting.terminal) == (State.PROCESSING, False)
    remote_id = waiting.execution_id
    assert remote_id is not None
    assert remote.sent_input(remote_id) == {"text": "hello"}
    remote.complete(remote_id, SOUND)
    done = await deployment.ended(job_id)
    assert (done.state, done.result) == (State.COMPLETED, b'{"bytes": %d}' % len(SOUND))
    assert (done.execution_id, done.attempts) == (remote_id, 1)
    (artifact,) = await deployment.engine.artifacts(job_id)
    assert (artifact.name, artifact.media_type) == ("render.wav", "audio/wav")
    assert await deployment.blobs.get(artifact.blob_key) == SOUND
    async with connected(deployment.dsn) as sql:
        assert await sql.fetchval("SELECT count(*) FROM remote_calls") == 0
        assert await sql.fetchval("SELECT samples FROM remote_paces") == 1
        assert await sql.fetchval("SELECT count(*) FROM claims WHERE lease >> 40 = 0") == 0


async def test_no_slot_is_held_while_it_runs_elsewhere(
    dsn: str, tmp_path: Path, remote: FakeHttp
) -> None:
    async with RenderDeployment(dsn, tmp_path, remote, lane_concurrency=ONE_SLOT) as deployment:
        await deployment.start_render_worker()
        jobs = [await deployment.submit(f"{number}") for number in range(5)]
        for job_id in jobs:
            await deployment.parked(job_id)
        for work in list(remote.works):
            remote.complete(work, SOUND)
        for job_id in jobs:
            assert (await deployment.ended(job_id)).state is State.COMPLETED
    assert len(remote.works) == 5


async def test_many_who_look_at_once_finalize_once(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker()
    desks = [await deployment.open_remote_calls() for _ in range(4)]
    job_id = await deployment.submit()
    remote_id = (await deployment.parked(job_id)).execution_id
    assert remote_id is not None
    remote.complete(remote_id, SOUND)
    await asyncio.gather(*(desk.look("default", uuid(job_id)) for desk in desks for _ in range(3)))
    assert (await deployment.ended(job_id)).state is State.COMPLETED
    assert deployment.result_store.kept == [uuid(job_id)]


async def test_a_caller_who_looks_finalizes_without_any_poller(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id = await deployment.submit()
    remote_id = (await deployment.parked(job_id)).execution_id
    assert remote_id is not None
    remote.complete(remote_id, SOUND)
    done = await deployment.wait_for(job_id, lambda job: True, "it is there")
    while not done.terminal:
        await deployment.calls.look("default", uuid(job_id))
        done = await deployment.engine.get(job_id)
    assert done.state is State.COMPLETED


async def test_the_first_of_every_organisation_comes_before_the_second_of_any(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    crowd = [await deployment.submit(f"{number}", org="crowd") for number in range(6)]
    single = await deployment.submit("single", org="single")
    async with connected(deployment.dsn) as sql:
        while await sql.fetchval("SELECT count(*) FROM remote_calls WHERE lease IS NOT NULL") < 7:
            pass
        await sql.execute("UPDATE remote_calls SET due_at = now() - interval '1 h'")
        await sql.execute("UPDATE remote_calls SET due_at = now() WHERE org_id = 'single'")
    taken, _ = await deployment.calls.claim(2, 64, 1_000, "")
    assert {call.org for call in taken} == {"crowd", "single"}
    rest, _ = await deployment.calls.claim(100, 64, 1_000, "")
    assert len(rest) == 5
    assert {call.uuid for call in [*taken, *rest]} == {uuid(job) for job in [*crowd, single]}
