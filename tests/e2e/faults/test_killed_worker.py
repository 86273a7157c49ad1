"""kill -9: what the worker held is rescued, and how long that takes when nobody saw it die."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import psutil

from coatcheck import State
from tests.deployment import Deployment
from tests.e2e.faults.roles import executions_of, payload, start_worker_process, wait_until_executed
from tests.waiting import eventually_async

LEASE = timedelta(seconds=2)
SHORT_LEASE = "urgent=2,standard=2"


UNSEEN = "UPDATE workers SET host = 'another host'"
"""Nobody can look for them: what is left is their silence."""


async def test_a_killed_workers_job_is_rescued_when_its_lease_ends_and_completes(
    deployment: Deployment,
) -> None:
    victim = await start_worker_process(deployment, lane_ack_seconds=SHORT_LEASE)
    await deployment.sql.execute(UNSEEN)
    deployment.start_maintenance()
    ticket = await deployment.engine.submit(
        "lab.post__wait_first", payload(deployment, gate="never"), retries=0
    )
    await wait_until_executed(deployment, ticket)
    await victim.kill()
    last_seen = await deployment.sql.fetchval(
        "SELECT last_seen_at FROM workers WHERE boot = $1", victim.said("ready")[0]["boot"]
    )
    await start_worker_process(deployment)
    view = await deployment.wait_for_end(ticket)

    assert (view.state, view.result) == (State.COMPLETED, b'{"attempt":2}')
    assert (view.crashes, view.failures, view.interruptions) == (1, 0, 0)
    assert view.dispatched_at is not None
    assert view.dispatched_at - last_seen >= LEASE
    assert executions_of(deployment, ticket) == 2


async def test_permits_of_a_killed_worker_come_back(deployment: Deployment) -> None:
    victim = await start_worker_process(deployment, crash_at="run.before_handler")
    first = await deployment.engine.submit("lab.post__limited", payload(deployment))
    second = await deployment.engine.submit("lab.post__limited", payload(deployment))
    assert await victim.exit() == 137
    assert await deployment.sql.fetchval("SELECT count(*) FROM jobs WHERE lease IS NOT NULL") == 1
    # Long silent, by the database's clock.
    await deployment.sql.execute("UPDATE workers SET last_seen_at = now() - interval '1 hour'")
    deployment.start_maintenance()
    await start_worker_process(deployment)
    views = await deployment.wait_for_ends([first, second])

    assert {view.state for view in views} == {State.COMPLETED}
    assert sorted(view.crashes for view in views) == [0, 1]


async def test_a_worker_restarted_under_its_old_name_has_to_wait_for_its_old_leases(
    deployment: Deployment,
) -> None:
    victim = await start_worker_process(deployment, name="same", lane_ack_seconds=SHORT_LEASE)
    await deployment.sql.execute(UNSEEN)
    deployment.start_maintenance()
    ticket = await deployment.engine.submit(
        "lab.post__wait_first", payload(deployment, gate="never")
    )
    await wait_until_executed(deployment, ticket)
    await victim.kill()
    successor = await start_worker_process(deployment, name="same", lane_ack_seconds=SHORT_LEASE)
    view = await deployment.wait_for_end(ticket)

    old_boot, new_boot = (each.said("ready")[0]["boot"] for each in (victim, successor))
    assert new_boot > old_boot
    names = await deployment.sql.fetch(
        "SELECT name, last_seen_at FROM workers WHERE boot = ANY($1) ORDER BY boot",
        [old_boot, new_boot],
    )
    assert [row["name"] for row in names] == ["same", "same"]
    assert (view.state, view.crashes) == (State.COMPLETED, 1)
    assert view.dispatched_at is not None
    assert view.dispatched_at - names[0]["last_seen_at"] >= LEASE


async def test_an_isolated_jobs_process_dies_with_its_worker_and_its_folder_goes_with_the_next(
    deployment: Deployment,
) -> None:
    victim = await start_worker_process(deployment)
    ticket = await deployment.engine.submit(
        "lab.post__wait_apart", payload(deployment, gate="never")
    )
    child = psutil.Process(await wait_until_executed(deployment, ticket))
    assert child.pid != victim.pid
    folders = _folders(deployment.folder)
    await victim.kill()
    assert len(folders) == 1

    async def child_is_gone() -> bool:
        return not child.is_running() or child.status() == psutil.STATUS_ZOMBIE

    await eventually_async(child_is_gone, "the job's process is gone")
    await start_worker_process(deployment)

    async def folder_is_gone() -> bool:
        return folders[0] not in _folders(deployment.folder)

    await eventually_async(folder_is_gone, "the next worker removes the folder of the dead one")


def _folders(folder: Path) -> list[Path]:
    return [path for path in (folder / "temp").iterdir() if path.is_dir()]
