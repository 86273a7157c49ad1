"""The slot of a job that is parked is the next one's, at once."""

from __future__ import annotations

from pathlib import Path

from coatcheck import Lane
from tests.remote_calls.render_deployment import RenderDeployment
from tests.remotes.fake_http import FakeHttp

JOBS = 5
HARDLY_EVER = 3600.0


async def test_what_waits_for_a_slot_is_spawned_without_a_poll(
    dsn: str, tmp_path: Path, remote: FakeHttp
) -> None:
    async with RenderDeployment(
        dsn,
        tmp_path,
        remote,
        lane_concurrency=dict.fromkeys(Lane, 1),
        poll_seconds_min=HARDLY_EVER,
        poll_seconds_max=HARDLY_EVER,
    ) as deployment:
        jobs = [await deployment.submit(f"{number}") for number in range(JOBS)]
        await deployment.start_render_worker(polling=False)
        for job_id in jobs:
            await deployment.parked(job_id)
    assert len(remote.works) == JOBS
