"""An organisation whose remote is slow, or silent, holds up no other."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec.structs import replace

from coatcheck.core.remote.finalizer import KeyedSemaphore
from tests.db.rows import connected, write_claims
from tests.remote_calls.render_deployment import SOUND, RenderDeployment
from tests.remotes.fake_http import FakeHttp
from tests.remotes.faults import Hang
from tests.waiting import eventually_async

CALLS = 1_000
"""More than a process looks at at a time."""
OF_ONE_ORG = 64

_CLONE_JOBS = """
INSERT INTO jobs (org_id, id, lane, endpoint, flow, failures_max, payload, state, started_at, lease)
SELECT j.org_id, gen_random_uuid(), j.lane, j.endpoint, j.flow, j.failures_max, j.payload, j.state,
       j.started_at, nextval('parked_leases')
FROM jobs AS j CROSS JOIN generate_series(1, $1)
WHERE j.org_id = 'silent'
"""
_CLONE_CALLS = """
INSERT INTO remote_calls (
    org_id, job_id, begun_by, endpoint, pace_key, destination, spawned_at, remote_id, lease, due_at
)
SELECT j.org_id, j.id, c.begun_by, c.endpoint, c.pace_key, c.destination, c.spawned_at, c.remote_id,
       j.lease, now()
FROM jobs AS j JOIN remote_calls AS c ON c.org_id = j.org_id AND c.job_id <> j.id
WHERE j.org_id = 'silent'
"""


async def test_a_remote_that_never_answers_keeps_no_other_from_being_asked(
    dsn: str, tmp_path: Path, remote: FakeHttp
) -> None:
    async with (
        FakeHttp.running() as silent,
        RenderDeployment(dsn, tmp_path, remote) as deployment,
        connected(dsn) as sql,
    ):

        async def spawned(org: str) -> str:
            await deployment.submit(org=org)
            remote_id: str = await eventually_async(
                lambda: sql.fetchval("SELECT execution_id FROM jobs WHERE org_id = $1", org),
                "it is parked",
            )
            return remote_id

        await deployment.start_render_worker(polling=False)
        answering = deployment.to
        deployment.to = replace(answering, target=silent.definition())
        await spawned("silent")
        silent.faults.extend([Hang()] * 2 * CALLS)
        await sql.execute("SET session_replication_role = replica")  # no job begins as parked
        await sql.execute(_CLONE_JOBS, CALLS)
        await write_claims(sql)
        await sql.execute(_CLONE_CALLS)
        await deployment.start_render_worker()
        asked = "SELECT count(*) FROM remote_calls WHERE org_id = 'silent' AND looker IS NOT NULL"
        await eventually_async(lambda: sql.fetchval(asked), "somebody asks the silent one")

        deployment.to = answering
        remote.complete(await spawned("other"), SOUND)
        completed = "SELECT state = 'completed' FROM jobs WHERE org_id = 'other'"
        await eventually_async(lambda: sql.fetchval(completed), "the other's is completed")
        assert await sql.fetchval(asked) == OF_ONE_ORG


async def test_who_has_all_of_its_own_turns_leaves_those_of_others() -> None:
    turns = KeyedSemaphore(total_max=4, per_key_max=2)
    begun: list[str] = []

    async def take_one(name: str) -> None:
        async with turns.hold(name):
            begun.append(name)
            await may_end.wait()

    may_end = asyncio.Event()
    async with asyncio.TaskGroup() as group, AsyncExitStack() as closing:
        closing.callback(may_end.set)
        for name in ("slow", "slow", "slow", "slow", "other"):
            group.create_task(take_one(name))

        async def taken() -> bool:
            return "other" in begun

        await eventually_async(taken, "the other has its turn")
        assert begun.count("slow") == 2
    assert begun.count("slow") == 4
