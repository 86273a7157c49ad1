"""What becomes of a job whose remote fails, forgets, talks nonsense, is away, or takes too long."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from coatcheck.core.remote.context import RemoteRetryPolicy
from coatcheck.core.remote.spawner import SPAWN_FAULTS_MAX
from coatcheck.domain.remote_work import Destination, OperatorRemote
from coatcheck.domain.states import State
from tests.db.rows import connected, recorded
from tests.remote_calls.render_deployment import SOUND, RenderDeployment, uuid
from tests.remotes.fake_http import FakeHttp
from tests.remotes.fake_runpod import FakeRunpod
from tests.remotes.fake_service import SECRETS
from tests.remotes.faults import Cut, Garbage, Status

NOBODY_LISTENS = 9


async def spawned(deployment: RenderDeployment, **options: object) -> tuple[str, str]:
    job_id = await deployment.submit(**options)
    remote_id = (await deployment.parked(job_id)).execution_id
    assert remote_id is not None
    return job_id, remote_id


async def look_now(deployment: RenderDeployment, job_id: str) -> None:
    """Make it due, so that whoever polls looks at once."""
    async with connected(deployment.dsn) as sql:
        await sql.execute(
            "UPDATE remote_calls SET due_at = now(), looker = NULL,"
            " looked_at = now() - interval '1 h' WHERE due_at IS NOT NULL"
        )
    await deployment.calls.look("default", uuid(job_id))


async def retry_now(deployment: RenderDeployment) -> None:
    async with connected(deployment.dsn) as sql:
        await sql.execute(
            recorded("UPDATE jobs SET state = 'queued', run_at = now() WHERE state = 'retrying'")
        )


async def test_what_failed_there_is_tried_again_by_a_spawn_of_its_own(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id, first = await spawned(deployment)
    remote.fail(first, "out of memory")
    await look_now(deployment, job_id)
    failed = await deployment.engine.get(job_id)
    assert (failed.state, failed.error_code, failed.failures) == (
        State.RETRYING,
        "remote_failed",
        1,
    )
    assert "out of memory" in (failed.error_message or "")
    await retry_now(deployment)
    again = await deployment.wait_for(
        job_id, lambda job: job.execution_id != first, "it is spawned again"
    )
    assert again.execution_id is not None
    remote.complete(again.execution_id, SOUND)
    await look_now(deployment, job_id)
    assert (await deployment.ended(job_id)).state is State.COMPLETED
    assert set(remote.works) == {first, again.execution_id}


async def test_what_failed_there_fails_for_good_if_its_keeper_says_so(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    deployment.result_store.is_final = True
    await deployment.start_render_worker(polling=False)
    job_id, remote_id = await spawned(deployment)
    remote.fail(remote_id, "no such voice")
    await look_now(deployment, job_id)
    failed = await deployment.engine.get(job_id)
    assert (failed.state, failed.error_code) == (State.FAILED, "remote_failed")


async def test_what_the_remote_has_forgotten_is_a_failure_that_is_tried_again(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id, remote_id = await spawned(deployment)
    remote.forget(remote_id)
    for _ in range(2):  # a proxy without a route says so for a moment, too
        await look_now(deployment, job_id)
        assert (await deployment.engine.get(job_id)).state is State.PROCESSING
    await look_now(deployment, job_id)
    lost = await deployment.engine.get(job_id)
    assert (lost.state, lost.error_code) == (State.RETRYING, "remote_lost")


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Garbage(b"<html>"), "remote_garbage"),
        (Status(500), "remote_http_500"),
        (Cut(), "remote_broke_off"),
    ],
    ids=["garbage", "500", "cut"],
)
async def test_nonsense_is_borne_a_few_times_and_then_ends_the_attempt(
    deployment: RenderDeployment, remote: FakeHttp, fault: Garbage | Status | Cut, code: str
) -> None:
    await deployment.start_render_worker(polling=False)
    deployment.calls = await deployment.open_remote_calls(retry_policy=RemoteRetryPolicy(2))
    job_id, remote_id = await spawned(deployment)
    remote.faults = [fault]
    await look_now(deployment, job_id)
    assert (await deployment.engine.get(job_id)).state is State.PROCESSING
    remote.faults = [fault]
    await look_now(deployment, job_id)
    ended = await deployment.engine.get(job_id)
    assert (ended.state, ended.error_code) == (State.RETRYING, code)
    assert remote.cancelled == [remote_id]


async def test_sense_between_two_faults_makes_them_not_in_a_row(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    deployment.calls = await deployment.open_remote_calls(retry_policy=RemoteRetryPolicy(2))
    job_id, remote_id = await spawned(deployment)
    for _ in range(3):
        remote.faults = [Status(500)]
        await look_now(deployment, job_id)
        await look_now(deployment, job_id)
    assert (await deployment.engine.get(job_id)).state is State.PROCESSING
    remote.complete(remote_id, SOUND)
    await look_now(deployment, job_id)
    assert (await deployment.engine.get(job_id)).state is State.COMPLETED


async def test_a_remote_that_is_away_costs_no_attempt_at_the_spawn(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    target = remote.unreachable_definition(NOBODY_LISTENS)
    deployment.to = msgspec.structs.replace(deployment.to, target=target)
    await deployment.start_render_worker(polling=False)
    job_id = await deployment.submit()
    away = await deployment.wait_for(job_id, lambda job: job.unreachables > 0, "the remote is away")
    assert (away.state, away.failures, away.error_code) == (
        State.RETRYING,
        0,
        "target_unreachable",
    )
    assert remote.works == {}


@pytest.mark.parametrize(
    ("operators", "code", "told"),
    [
        ({}, "remote_misdefined", "The operator has no remote 'studio' (any more)."),
        (
            {"remotes.studio": dict.fromkeys(SECRETS, "wrong")},
            "remote_http_401",
            "The remote answered 401",
        ),
    ],
    ids=["not set up", "not let in"],
)
async def test_an_operator_whose_remote_cannot_be_used_is_told_once(
    deployment: RenderDeployment,
    caplog: pytest.LogCaptureFixture,
    operators: dict[str, dict[str, str]],
    code: str,
    told: str,
) -> None:
    target = deployment.remote.definition()
    deployment.operators = {name: OperatorRemote(target, keys) for name, keys in operators.items()}
    deployment.to = Destination(operator="remotes.studio")
    await deployment.start_render_worker(polling=False)
    for _ in range(2):
        ended = await deployment.ended(await deployment.submit())
        assert (ended.state, ended.error_code) == (State.FAILED, code)
        assert told in (ended.error_message or "")
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert [told in each for each in warnings] == [True]


async def test_a_spawn_whose_answer_is_lost_finds_the_same_work(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id, first = await spawned(deployment)
    async with connected(deployment.dsn) as sql:
        # As if the worker had died between the spawn and the moment it was saved.
        await sql.execute(
            "UPDATE remote_calls SET remote_id = NULL, lease = NULL, due_at = NULL, looker = NULL"
        )
        await sql.execute(
            recorded(
                "UPDATE jobs SET state = 'queued', lease = NULL, crashes = 1, execution_id = NULL"
            )
        )
    again = await deployment.parked(job_id)
    assert again.execution_id == first
    assert set(remote.works) == {first}


async def test_what_takes_longer_than_it_may_is_stopped_over_there(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id, remote_id = await spawned(deployment)
    async with connected(deployment.dsn) as sql:
        await sql.execute("UPDATE jobs SET run_deadline = now() - interval '1 s'")
    await look_now(deployment, job_id)
    late = await deployment.engine.get(job_id)
    assert (late.state, late.error_code) == (State.RETRYING, "timed_out")
    assert remote.cancelled == [remote_id]


async def test_a_result_that_breaks_off_is_fetched_again(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id, remote_id = await spawned(deployment)
    remote.complete(remote_id, SOUND)
    remote.works[remote_id].cut_after = 100
    await look_now(deployment, job_id)
    assert (await deployment.engine.get(job_id)).state is State.FINALIZING
    assert await deployment.stored() == []
    remote.works[remote_id].cut_after = None
    await look_now(deployment, job_id)
    assert (await deployment.engine.get(job_id)).state is State.COMPLETED
    assert len(remote.works) == 1


async def test_an_id_that_was_lost_for_ever_fails_the_job(dsn: str, tmp_path: Path) -> None:
    """At a service that takes no token: to spawn again would be to have it done twice."""
    async with (
        FakeRunpod.running() as remote,
        RenderDeployment(dsn, tmp_path, remote) as deployment,
    ):
        await deployment.start_render_worker(polling=False)
        remote.faults = [Cut()]
        job_id = await deployment.submit()
        lost = await deployment.ended(job_id)
    assert (lost.state, lost.error_code) == (State.FAILED, "remote_id_missing")


async def test_an_id_that_was_lost_with_its_worker_fails_the_job(dsn: str, tmp_path: Path) -> None:
    async with (
        FakeRunpod.running() as remote,
        RenderDeployment(dsn, tmp_path, remote) as deployment,
    ):
        await deployment.start_render_worker(polling=False)
        job_id, _ = await spawned(deployment)
        async with connected(deployment.dsn) as sql:
            await sql.execute(
                "UPDATE remote_calls SET remote_id = NULL, lease = NULL, due_at = NULL"
            )
            await sql.execute(
                recorded("UPDATE jobs SET state = 'queued', lease = NULL, crashes = 1")
            )
        lost = await deployment.ended(job_id)
        assert (lost.state, lost.error_code) == (State.FAILED, "remote_id_missing")
        assert len(remote.works) == 1


async def test_callers_who_look_often_do_not_use_up_the_patience_with_a_remote(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    deployment.calls = await deployment.open_remote_calls(retry_policy=RemoteRetryPolicy(2))
    job_id, remote_id = await spawned(deployment)
    remote.faults = [Status(503, "20")]
    await look_now(deployment, job_id)
    asked = len(remote.calls)
    async with connected(deployment.dsn) as sql:
        await sql.execute("UPDATE remote_calls SET looked_at = now() - interval '1 h'")
        assert await sql.fetchval("SELECT due_at > now() + interval '15 s' FROM remote_calls")
    remote.faults = [Status(503)] * 20
    for _ in range(5):
        await deployment.calls.look("default", uuid(job_id))
    assert len(remote.calls) == asked
    remote.faults = []
    assert (await deployment.engine.get(job_id)).state is State.PROCESSING
    remote.complete(remote_id, SOUND)
    await look_now(deployment, job_id)
    assert (await deployment.engine.get(job_id)).state is State.COMPLETED


async def test_what_was_done_in_time_counts_although_nobody_looked_until_its_time_was_up(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id, remote_id = await spawned(deployment)
    remote.complete(remote_id, SOUND)
    async with connected(deployment.dsn) as sql:
        await sql.execute("UPDATE jobs SET run_deadline = now() - interval '1 h'")
    await look_now(deployment, job_id)
    assert (await deployment.engine.get(job_id)).state is State.COMPLETED
    assert remote.cancelled == []


async def test_no_remote_can_ask_to_be_left_alone_for_longer_than_the_job_may_take(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id, _ = await spawned(deployment, timeout=60.0)
    remote.faults = [Status(503, "3000")]
    await look_now(deployment, job_id)
    async with connected(deployment.dsn) as sql:
        late = "SELECT r.due_at <= j.run_deadline FROM remote_calls AS r, jobs AS j"
        assert await sql.fetchval(late)


async def test_a_spawn_that_is_answered_without_sense_costs_no_attempt_at_first(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    remote.faults = [Status(503)]
    job_id = await deployment.submit()
    waiting = await deployment.wait_for(job_id, lambda job: job.unreachables == 1, "it waits")
    assert (waiting.state, waiting.failures) == (State.RETRYING, 0)
    async with connected(deployment.dsn) as sql:
        await sql.execute(
            "UPDATE jobs SET unreachables = $1 WHERE state = 'retrying'", SPAWN_FAULTS_MAX
        )
        remote.faults = [Status(503)]
        await sql.execute(recorded("UPDATE jobs SET state = 'queued', run_at = now()"))
    failed = await deployment.wait_for(job_id, lambda job: job.failures == 1, "an attempt is spent")
    assert failed.error_code == "remote_http_503"
