"""Remotes that are away, that stutter, or that nobody can find: what is waited for."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from coatcheck.core.remote.context import RemoteRetryPolicy
from coatcheck.domain.catalogue import remote_address
from coatcheck.domain.remote_work import decode_destination, encode_destination
from coatcheck.domain.states import State
from tests.db.rows import connected
from tests.egress.upstream_server import head
from tests.remote_calls.render_deployment import SOUND, RenderDeployment, uuid
from tests.remotes.fake_http import FakeHttp
from tests.remotes.fake_service import SECRETS
from tests.remotes.faults import Status
from tests.sealed_secrets import store_secrets
from tests.waiting import eventually_async

NOBODY_LISTENS = 9
MORE_THAN_ONE_ORG_MAY_HAVE = 66


async def look_now(deployment: RenderDeployment, job_id: str) -> None:
    async with connected(deployment.dsn) as sql:
        await sql.execute(
            "UPDATE remote_calls SET due_at = now(), looker = NULL,"
            " looked_at = now() - interval '1 h' WHERE due_at IS NOT NULL"
        )
    await deployment.calls.look("default", uuid(job_id))


async def test_who_was_away_and_comes_back_with_one_fault_is_borne(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    deployment.calls = await deployment.open_remote_calls(
        retry_policy=RemoteRetryPolicy(faults_max=3)
    )
    job_id = await deployment.submit()
    await deployment.parked(job_id)
    async with connected(deployment.dsn) as sql:
        there = await sql.fetchval("SELECT destination FROM remote_calls")
        target = remote.unreachable_definition(NOBODY_LISTENS)
        stored_as = await store_secrets(deployment.settings, remote_address(target), SECRETS)
        known = decode_destination(there)
        away = encode_destination(replace(known, target=target, secrets_id=stored_as))
        await sql.execute("UPDATE remote_calls SET destination = $1", away)
        for _ in range(5):
            await look_now(deployment, job_id)
        await sql.execute("UPDATE remote_calls SET destination = $1", there)
    remote.faults = [Status(502)]
    await look_now(deployment, job_id)
    assert (await deployment.engine.get(job_id)).state is State.PROCESSING
    assert remote.cancelled == []


async def test_work_of_a_remote_that_the_operator_took_away_ends_when_its_time_is_up(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id = await deployment.submit()
    await deployment.parked(job_id)
    async with connected(deployment.dsn) as sql:
        gone = b'{"operator": "gone", "note": {"name": "a"}}'
        await sql.execute("UPDATE remote_calls SET destination = $1", gone)
        await look_now(deployment, job_id)
        assert (await deployment.engine.get(job_id)).state is State.PROCESSING
        await sql.execute("UPDATE jobs SET run_deadline = now() - interval '8 h'")
    await look_now(deployment, job_id)
    ended = await deployment.engine.get(job_id)
    assert (ended.state, ended.error_code) == (State.RETRYING, "timed_out")


async def test_a_result_on_a_host_that_is_gone_is_given_up_when_its_time_is_up(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    deployment.calls = await deployment.open_remote_calls(
        retry_policy=RemoteRetryPolicy(faults_max=2)
    )
    job_id = await deployment.submit()
    remote_id = (await deployment.parked(job_id)).execution_id
    assert remote_id is not None
    remote.complete(remote_id, SOUND)
    elsewhere = f"http://127.0.0.1:{NOBODY_LISTENS}/x"

    async def redirect(_: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(head("302 Found", (("Location", elsewhere), ("Content-Length", "0"))))

    remote.send_file = redirect  # type: ignore[method-assign]
    for _ in range(4):
        await look_now(deployment, job_id)
    assert (await deployment.engine.get(job_id)).state is State.FINALIZING
    async with connected(deployment.dsn) as sql:
        await sql.execute("UPDATE jobs SET run_deadline = now() - interval '8 h'")
    for _ in range(2):
        await look_now(deployment, job_id)
    assert (await deployment.engine.get(job_id)).state is State.RETRYING


async def test_one_long_result_does_not_keep_others_from_being_looked_at(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    jobs = [await deployment.submit(f"{n}") for n in range(MORE_THAN_ONE_ORG_MAY_HAVE)]
    ids = [(await deployment.parked(job_id)).execution_id for job_id in jobs]
    deployment.result_store.may_end.clear()
    assert ids[0] is not None
    assert ids[-1] is not None
    async with connected(deployment.dsn) as sql:
        await sql.execute("UPDATE remote_calls SET due_at = now() + interval '1 h'")
        await sql.execute(
            "UPDATE remote_calls SET due_at = now() - interval '1 h' WHERE remote_id = ANY($1)",
            ids[:64],
        )
        remote.complete(ids[0], SOUND)
        await deployment.start_render_worker()
        await deployment.result_store.begun.wait()
        remote.fail(ids[-1], "no")
        await sql.execute("UPDATE remote_calls SET due_at = now() WHERE remote_id = $1", ids[-1])

    async def seen() -> bool:
        return (await deployment.engine.get(jobs[-1])).state is not State.PROCESSING

    await eventually_async(seen, "the last one was looked at")
    assert (await deployment.engine.get(jobs[0])).state is State.FINALIZING
