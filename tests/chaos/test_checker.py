"""Each check finds what it is for, and finds nothing in a run that went well."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from chaos.checker import counts
from chaos.checker.attempts import attempts_are_counted_apart
from chaos.checker.batches import exports_are_whole, runs_are_counted
from chaos.checker.canaries import no_canary_is_left
from chaos.checker.check import CHECKS
from chaos.checker.curves import curves
from chaos.checker.dead_states import all_ends, no_dead_state
from chaos.checker.ends import one_end
from chaos.checker.expectations import ends_as_expected
from chaos.checker.ids import spelt
from chaos.checker.lost import lost
from chaos.checker.outbox import deliveries_end, hasten_deliveries, webhooks_match_transitions
from chaos.checker.receipts import receipts_cover_the_outbox
from chaos.checker.rescues import no_false_rescue
from chaos.checker.unexpected import unexpected
from chaos.checker.usage import metered_once
from coatcheck.domain.ids import new_id
from tests.chaos.checker_scene import BATCH_TASKS, CANARY, Check, Scene, played
from tests.databases import Databases
from tests.db.rows import ORG, recorded

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def whole(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Scene]:
    async with (
        databases.fresh() as dsn,
        played(dsn, tmp_path_factory.mktemp("run")) as scene,
    ):
        yield scene


@pytest_asyncio.fixture(loop_scope="module")
async def scene(whole: Scene) -> AsyncIterator[Scene]:
    """What a test does to the rows is rolled back."""
    transaction = whole.sql.transaction()
    await transaction.start()
    yield whole
    await transaction.rollback()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_nothing_is_found_in_a_run_that_went_well(scene: Scene, check: Check) -> None:
    assert await scene.findings(check) == []


async def test_the_run_is_counted(scene: Scene) -> None:
    counted = await counts.counted(scene.evidence)

    assert (counted["jobs"], counted["tasks"]) == (3, BATCH_TASKS)
    assert (counted["completed"], counted["failed"]) == (2 + BATCH_TASKS, 1)
    assert (counted["rescues"], counted["interruptions"], counted["calls ok"]) == (1, 0, 4)
    assert counted["longest time without an acknowledgement (s)"] == 0
    drawn = await curves(scene.evidence)
    assert sum(drawn["submitted"]) == sum(drawn["ended"]) == 3 + BATCH_TASKS


# A


async def test_an_acknowledged_job_that_is_gone_is_lost(scene: Scene) -> None:
    await scene.spoil("DELETE FROM jobs WHERE id = $1", scene.completed)

    (found,) = await scene.findings(lost)
    assert f"job {spelt(scene.completed)} is gone" in found


async def test_an_acknowledged_job_that_has_not_ended_is_lost(scene: Scene) -> None:
    await _revive(scene)

    (found,) = await scene.findings(lost)
    assert "has not ended: it is queued" in found


async def test_an_acknowledged_batch_without_one_of_its_tasks_has_lost_it(scene: Scene) -> None:
    await scene.spoil("DELETE FROM jobs WHERE run_id = $1 AND task_index = 1", scene.run)

    (found,) = await scene.findings(lost)
    assert f"acknowledged with {BATCH_TASKS} tasks and has {BATCH_TASKS - 1}" in found


async def test_a_batch_that_did_not_end_is_lost(scene: Scene) -> None:
    await scene.spoil("UPDATE runs SET completed_at = NULL")

    (found,) = await scene.findings(lost)
    assert f"batch {spelt(scene.batch)} has not ended" in found


async def test_what_the_load_saw_is_a_finding_of_its_own(scene: Scene) -> None:
    violation = {"t": 5.0, "kind": "violation", "check": "x", "surface": "llm", "detail": "odd"}
    assert await scene.findings(lost, violation) == ["llm None: odd"]


async def test_a_job_that_nobody_asked_for_is_unexpected(scene: Scene) -> None:
    await _add_job(scene)

    (found,) = await scene.findings(unexpected)
    assert "1 of gateway in acme that no call was answered with" in found


async def test_a_call_of_unknown_outcome_explains_one_job_and_no_second_one(scene: Scene) -> None:
    await _add_job(scene)
    call = {"call": 50, "surface": "gateway", "operation": "submit", "org": ORG, "key": None}
    unclear = ({"t": 1.0, "kind": "invoked", **call}, {"t": 1.1, "kind": "unknown", **call})
    assert await scene.findings(unexpected, *unclear) == []

    await _add_job(scene)
    (found,) = await scene.findings(unexpected, *unclear)
    assert "2 of gateway" in found


# C and D


async def test_a_second_end_is_found(scene: Scene) -> None:
    await _add_step(scene, "processing", "completed")

    found = await scene.findings(one_end)
    assert any("ended ['completed', 'completed']" in each for each in found)


async def test_a_step_out_of_an_end_is_found(scene: Scene) -> None:
    await _add_step(scene, "completed", "queued")

    found = await scene.findings(one_end)
    assert any("went from completed to queued" in each for each in found)


async def test_an_end_that_is_changed_is_found(scene: Scene) -> None:
    await scene.sql.execute("UPDATE jobs SET expires_at = now() WHERE id = $1", scene.completed)
    assert await scene.findings(one_end) == []

    await scene.sql.execute("UPDATE jobs SET result = '7' WHERE id = $1", scene.completed)
    (found,) = await scene.findings(one_end)
    assert found.endswith("was completed, and then changed: result")


async def test_a_state_that_no_step_led_to_is_found(scene: Scene) -> None:
    await _revive(scene)

    (found,) = await scene.findings(one_end)
    assert "is queued, its last step led to completed" in found


async def test_an_end_that_is_metered_twice_is_found(scene: Scene) -> None:
    await scene.spoil("UPDATE usage SET completed = completed + 1, attempts = attempts + 1")

    found = await scene.findings(metered_once)
    assert [each.split(": ")[1].split()[0] for each in found] == ["completed", "attempts"]


async def test_an_end_that_was_not_metered_is_found(scene: Scene) -> None:
    await scene.spoil("DELETE FROM usage")

    found = await scene.findings(metered_once)
    assert any("completed is metered as 0, and was 5" in each for each in found)


async def test_a_job_that_failed_and_should_have_completed_is_found(scene: Scene) -> None:
    await scene.spoil("UPDATE jobs SET state = 'failed', result = NULL WHERE id = $1",
                      scene.completed)  # fmt: skip

    (found,) = await scene.findings(ends_as_expected)
    assert "should be completed" in found


async def test_a_job_whose_worker_was_killed_once_too_often_may_fail(scene: Scene) -> None:
    await scene.spoil(
        "UPDATE jobs SET state = 'failed', crashes = 4, error_code = 'worker_lost' WHERE id = $1",
        scene.completed,
    )
    assert await scene.findings(ends_as_expected) == []


# E


async def test_a_job_that_goes_on_when_everything_should_have_ended_is_found(
    scene: Scene,
) -> None:
    await _add_job(scene)

    (found,) = await all_ends(scene.evidence, limit_seconds=0)
    assert "of demo.post__other is still queued" in found.detail


async def test_a_job_that_nobody_takes_is_in_a_dead_state(scene: Scene) -> None:
    await _add_job(scene)
    await scene.spoil("UPDATE jobs SET run_at = now() - interval '1 hour' WHERE state = 'queued'")

    (found,) = await scene.findings(no_dead_state)
    assert "nobody takes it" in found


async def test_a_job_that_is_done_elsewhere_and_that_nobody_looks_at_is_dead(scene: Scene) -> None:
    await _add_job(scene)
    await scene.spoil("UPDATE jobs SET state = 'processing', lease = 7 WHERE state = 'queued'")

    (found,) = await scene.findings(no_dead_state)
    assert "nothing will poll it" in found


async def test_a_held_job_that_no_claim_leads_to_is_dead(scene: Scene) -> None:
    await _add_job(scene)
    await scene.spoil(
        "UPDATE jobs SET state = 'processing', lease = (1::bigint << 40) | 999"
        " WHERE state = 'queued'"
    )

    (found,) = await scene.findings(no_dead_state)
    assert "no row of claims leads to it" in found


async def test_a_job_that_waits_for_a_time_and_that_nobody_will_queue_is_dead(
    scene: Scene,
) -> None:
    await _add_job(scene)
    await scene.spoil("UPDATE jobs SET state = 'retrying' WHERE state = 'queued'")

    (found,) = await scene.findings(no_dead_state)
    assert "no row of postponed has it" in found


async def test_an_unsuccessful_job_that_lists_lack_is_found(scene: Scene) -> None:
    await scene.sql.execute("DELETE FROM unsuccessful_jobs")

    (found,) = await scene.findings(no_dead_state)
    assert spelt(scene.failed) in found
    assert "lists of such jobs lack it" in found


async def test_an_ended_task_that_lists_lack_is_found(scene: Scene) -> None:
    await scene.sql.execute("DELETE FROM ended_tasks")

    found = await scene.findings(no_dead_state)
    assert len(found) == BATCH_TASKS
    assert all("lists of such tasks lack it" in each for each in found)


async def test_a_list_that_nobody_takes_in_is_found(scene: Scene) -> None:
    await scene.sql.execute(
        """
        INSERT INTO batch_parts (org_id, id, batch_id, run_id, position, source, updated_at)
        VALUES ($1, $2, $3, $4, 1, 'upload', now() - interval '1 hour')
        """,
        ORG,
        new_id(),
        scene.batch,
        scene.run,
    )

    (found,) = await scene.findings(no_dead_state)
    assert "a list without an ingest job" in found


# F


async def test_a_drain_that_spent_an_attempt_is_found(scene: Scene) -> None:
    await scene.spoil(
        "INSERT INTO job_history (id, before, after, failures) "
        "VALUES ($1, 'processing', 'queued', 1)",
        scene.completed,
    )

    found = await scene.findings(attempts_are_counted_apart)
    assert any("added 1 failures, 0 crashes" in each for each in found)


async def test_more_attempts_than_there_may_be_are_found(scene: Scene) -> None:
    await scene.spoil("UPDATE jobs SET crashes = 11 WHERE id = $1", scene.completed)

    found = await scene.findings(attempts_are_counted_apart)
    assert any("11 crashes of 9 + 1" in each for each in found)


async def test_a_counter_that_no_step_moved_is_found(scene: Scene) -> None:
    await scene.spoil("UPDATE jobs SET failures = 0 WHERE id = $1", scene.failed)

    (found,) = await scene.findings(attempts_are_counted_apart)
    assert "which its steps did not add" in found


# G


async def test_a_canary_in_a_table_is_found_as_text_and_as_bytes(scene: Scene) -> None:
    assert await scene.findings(no_canary_is_left) == []

    await scene.spoil("UPDATE jobs SET result = $1 WHERE id = $2", CANARY + b"9", scene.completed)
    await scene.spoil("UPDATE orgs SET name = 'a canary-7-12'" if await _has_orgs(scene) else
                      "INSERT INTO orgs (org_id, name) VALUES ('x', 'a canary-7-12')")  # fmt: skip
    found = await scene.findings(no_canary_is_left)
    assert [each.split(":")[0] for each in found] == ["table jobs", "table orgs"]


async def test_a_canary_on_disk_is_found(scene: Scene) -> None:
    log = scene.evidence.folder / "postgres" / "server.log"
    log.parent.mkdir()
    try:
        log.write_bytes(b"x" * 5_000 + CANARY)
        blob = scene.evidence.folder / "blobs" / "deep" / "blob"
        blob.parent.mkdir()
        blob.write_bytes(CANARY)
        found = await scene.findings(no_canary_is_left)
        assert found == ["file blobs/deep/blob", "file postgres/server.log"]
    finally:
        log.unlink()
        blob.unlink()


# H


async def test_a_counter_of_a_run_that_drifted_is_found(scene: Scene) -> None:
    await scene.spoil("ALTER TABLE runs DROP CONSTRAINT completed_when_counted; "
                      "UPDATE runs SET succeeded = succeeded - 1")  # fmt: skip

    (found,) = await scene.findings(runs_are_counted)
    assert "counts 2 succeeded, and has 3" in found


async def test_a_run_that_was_completed_twice_is_found(scene: Scene) -> None:
    await scene.spoil("INSERT INTO run_history (id) VALUES ($1)", scene.run)

    (found,) = await scene.findings(runs_are_counted)
    assert "was completed 2 times" in found


async def test_a_run_that_was_completed_before_it_was_closed_is_found(scene: Scene) -> None:
    await scene.spoil("UPDATE runs SET closed_at = now() + interval '1 hour'")

    (found,) = await scene.findings(runs_are_counted)
    assert "completed before it was closed" in found


async def test_an_export_in_part_is_found(scene: Scene, tmp_path: Path) -> None:
    blob = scene.evidence.folder / "blobs" / "half"
    blob.write_bytes(b"half of it")
    await scene.sql.execute(
        """
        INSERT INTO batch_exports (org_id, id, batch_id, run_id, state, blob_key, bytes, sha256)
        VALUES ($1, $2, $3, $4, 'completed', 'half', 20, '\\x00')
        """,
        ORG,
        new_id(),
        scene.batch,
        scene.run,
    )

    (found,) = await scene.findings(exports_are_whole)
    assert "has 10 bytes, and should have 20" in found
    lines = {"t": 4.0, "kind": "exported", "job": spelt(scene.batch), "run": 1, "lines": 2}
    assert len(await scene.findings(exports_are_whole, lines)) == 2


# I


async def test_a_move_that_is_not_told_is_found(scene: Scene) -> None:
    await scene.spoil("DELETE FROM webhook_deliveries WHERE id = $1", scene.delivery)

    (found,) = await scene.findings(webhooks_match_transitions)
    assert "is told 0 times, and should be 1 to 1 times" in found


async def test_a_move_that_is_told_twice_is_found(scene: Scene) -> None:
    await scene.spoil(
        """
        INSERT INTO webhook_deliveries (org_id, target_id, subject_kind, subject_id, event, facts)
        SELECT org_id, target_id, subject_kind, subject_id, event, facts
        FROM webhook_deliveries WHERE id = $1
        """,
        scene.delivery,
    )

    (found,) = await scene.findings(webhooks_match_transitions)
    assert "is told 2 times" in found


async def test_a_move_that_never_was_and_is_told_is_found(scene: Scene) -> None:
    await scene.spoil(
        'UPDATE webhook_deliveries SET facts = facts || \'{"state": "failed"}\' WHERE id = $1',
        scene.delivery,
    )

    assert len(await scene.findings(webhooks_match_transitions)) == 2  # one made up, one left out


async def test_a_batch_whose_end_is_told_twice_is_found(scene: Scene) -> None:
    await scene.spoil(
        """
        INSERT INTO webhook_deliveries
            (org_id, target_id, subject_kind, subject_id, run_id, event, facts)
        SELECT org_id, target_id, subject_kind, subject_id, run_id, event, facts
        FROM webhook_deliveries WHERE event = 'batch.completed'
        """
    )

    (found,) = await scene.findings(webhooks_match_transitions)
    assert "is told 2 times" in found


async def test_a_delivery_that_is_left_lying_is_found(scene: Scene) -> None:
    await scene.spoil(
        "UPDATE webhook_deliveries SET status = 'pending', ended_at = NULL,"
        " due_at = now() - interval '1 hour' WHERE id = $1",
        scene.delivery,
    )

    (found,) = await scene.findings(deliveries_end)
    assert "is pending after 0 tries" in found


async def test_a_delivery_that_was_given_up_is_found(scene: Scene) -> None:
    await scene.spoil(
        "UPDATE webhook_deliveries SET status = 'exhausted', tries = 10 WHERE id = $1",
        scene.delivery,
    )

    (found,) = await scene.findings(deliveries_end)
    assert "is exhausted after 10 tries" in found


async def test_what_waits_for_its_next_try_is_tried_at_once(scene: Scene) -> None:
    assert await hasten_deliveries(scene.evidence, 0) == 0

    await scene.spoil(
        "UPDATE webhook_deliveries SET status = 'pending', tries = 2, ended_at = NULL,"
        " due_at = now() + interval '5 hours' WHERE id = $1",
        scene.delivery,
    )
    assert await hasten_deliveries(scene.evidence, 0) == 1
    due = "SELECT due_at <= now() FROM webhook_deliveries WHERE id = $1"
    assert await scene.sql.fetchval(due, scene.delivery)


async def test_a_delivery_that_was_marked_and_never_made_is_found(scene: Scene) -> None:
    await scene.spoil("UPDATE webhook_deliveries SET id = $2 WHERE id = $1", scene.delivery,
                      new_id())  # fmt: skip

    found = await scene.findings(receipts_cover_the_outbox)
    assert any("nobody received it" in each for each in found)
    assert any("no row tells of it" in each for each in found)


# L


async def test_a_job_taken_from_a_worker_that_was_heard_of_is_found(scene: Scene) -> None:
    await scene.spoil("UPDATE job_history SET silent = 0.3 WHERE crashes > 0")

    (found,) = await scene.findings(no_false_rescue)
    assert "heard of 0.30 s ago" in found


async def _revive(scene: Scene) -> None:
    await scene.spoil(
        "UPDATE jobs SET state = 'queued', finished_at = NULL, expires_at = NULL, payload = '{}'"
        " WHERE id = $1",
        scene.completed,
    )


async def _add_job(scene: Scene) -> None:
    await scene.sql.execute(
        recorded("""
        INSERT INTO jobs (org_id, id, lane, failures_max, endpoint, flow, payload)
        VALUES ($1, $2, 'standard', 0, 'demo.post__other', '', '{}')
        """),
        ORG,
        new_id(),
    )


async def _add_step(scene: Scene, before: str, after: str) -> None:
    await scene.spoil(
        "INSERT INTO job_history (id, before, after)"
        " VALUES ($1, $2::text::job_state, $3::text::job_state)",
        scene.completed,
        before,
        after,
    )


async def _has_orgs(scene: Scene) -> bool:
    return bool(await scene.sql.fetchval("SELECT EXISTS (SELECT FROM orgs)"))
