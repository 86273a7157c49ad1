"""Pollers, callers, callbacks and cancellations at the same jobs, in any order: one end each."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from coatcheck.core.remote.calls import RemoteCalls
from coatcheck.domain.errors import JobAlreadyEnded
from coatcheck.domain.states import State
from tests.db.rows import connected
from tests.e2e.faults import history
from tests.remote_calls.render_deployment import SOUND, RenderDeployment, uuid
from tests.remotes.fake_http import FakeHttp
from tests.waiting import eventually_async

JOBS = 24
SEED = 7


async def test_whoever_looks_or_cancels_a_job_has_one_end_and_leaves_nothing_else(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    chance = random.Random(SEED)
    async with connected(deployment.dsn) as sql:
        await history.keep(sql)
        await deployment.start_render_worker()
        await deployment.start_render_worker()
        desks = [deployment.calls, await deployment.open_remote_calls()]
        jobs = [await deployment.submit(f"{number:02}") for number in range(JOBS)]

        async def completed_over_there(job_id: str) -> None:
            remote_id = (await deployment.parked(job_id)).execution_id
            assert remote_id is not None
            remote.complete(remote_id, SOUND)
            url = remote.works[remote_id].callback_url
            assert url is not None
            for _ in range(3):
                await chance.choice(desks).called_back(url.rpartition("/")[2], b"{}")

        async def looked_at(job_id: str, desk: RemoteCalls) -> None:
            while not (await deployment.engine.get(job_id)).terminal:
                await desk.look("default", uuid(job_id))

        async def cancelled(job_id: str) -> None:
            await deployment.parked(job_id)
            for _ in range(chance.randrange(60)):
                await asyncio.sleep(0)
            try:
                await deployment.engine.cancel(job_id)
            except JobAlreadyEnded:
                return
            await chance.choice(desks).cancel("default", uuid(job_id))

        deeds = [completed_over_there(job_id) for job_id in jobs]
        deeds += [looked_at(job_id, desk) for job_id in jobs for desk in desks]
        deeds += [cancelled(job_id) for job_id in jobs[::2]]
        chance.shuffle(deeds)
        await asyncio.gather(*deeds)
        await eventually_async(
            lambda: sql.fetchval("SELECT count(*) = 0 FROM remote_calls"), "no call is left"
        )
        steps = await history.read(sql)

    ends = Counter(step.id for step in steps if step.after.terminal)
    assert ends == Counter(map(uuid, jobs))
    assert all(step.legal for step in steps)
    assert len(remote.works) == JOBS
    counting = []
    for job_id in jobs:
        artifacts = await deployment.engine.artifacts(job_id)
        is_completed = (await deployment.engine.get(job_id)).state is State.COMPLETED
        assert len(artifacts) == is_completed
        counting += [artifact.blob_key for artifact in artifacts]

    async def nothing_else_is_stored() -> bool:
        return sorted(await deployment.stored()) == sorted(counting)

    await eventually_async(nothing_else_is_stored, "what does not count is deleted")
