"""The checks that judge by the history: what was answered, seen, received, spawned, and struck."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from chaos.checker.evidence import Evidence, Row
from chaos.checker.executions import completed_jobs_were_executed
from chaos.checker.exits import nobody_ends_by_itself
from chaos.checker.finding import Finding, Verdict
from chaos.checker.forgetting import deleted_is_gone, forget_and_look
from chaos.checker.holders import results_are_of_the_holder
from chaos.checker.ids import spelt
from chaos.checker.one_key import one_key_one_job
from chaos.checker.receipts import duplicates, receipts_cover_the_outbox, requested_webhooks_arrived
from chaos.checker.recoveries import recoveries
from chaos.checker.remotes import one_live_execution
from chaos.checker.rescues import no_false_rescue
from chaos.checker.seen import ends_stay_as_seen
from chaos.checker.stale import refused_results
from chaos.checker.tenants import shown_as_it_is, tenants_are_apart
from chaos.checker.validity import what_is_missing
from chaos.history import History, note_execution, read
from chaos.sampler import Sampler
from coatcheck.domain.webhooks import message_id
from tests.chaos.checker_scene import Scene, played
from tests.databases import Databases
from tests.db.rows import ENDPOINT, ORG

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOO_LATE = "a result came too late: this worker no longer held the job"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def scene(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Scene]:
    async with (
        databases.fresh() as dsn,
        played(dsn, tmp_path_factory.mktemp("run")) as scene,
    ):
        yield scene


def _ok(call: int, key: str, job: str, **more: Any) -> list[Row]:
    said = {"call": call, "surface": "gateway", "operation": "submit", "org": ORG, "key": key}
    return [
        {"t": 1.0, "kind": "invoked", **said, **more},
        {"t": 1.1, "kind": "ok", **said, "job": job},
    ]


# B


async def test_a_key_that_was_answered_with_two_jobs_is_found(scene: Scene) -> None:
    (found,) = await scene.findings(one_key_one_job, *_ok(70, "key-0", "another", repeats=0))
    assert "with key 'key-0' was answered with" in found
    assert "another" in found


async def test_a_job_that_was_answered_to_two_keys_is_found(scene: Scene) -> None:
    (found,) = await scene.findings(one_key_one_job, *_ok(71, "other", spelt(scene.completed)))
    assert "was answered to the keys ['key-0', 'other']" in found


# D


async def test_an_end_that_was_seen_to_change_is_found(scene: Scene) -> None:
    seen = {"t": 9.0, "kind": "seen", "surface": "gateway", "job": spelt(scene.completed)}
    found = await scene.findings(
        ends_stay_as_seen,
        seen | {"state": "processing", "terminal": False},
        seen | {"state": "completed", "terminal": True, "result_digest": "other"},
        seen | {"state": "completed", "terminal": True, "result_digest": None},
    )
    assert ["was completed at 2.00 s and processing later" in found[0], len(found)] == [True, 2]
    assert "ended as completed (d), and later as completed (other)" in found[1]


# I


async def test_a_webhook_id_that_was_used_for_two_messages_is_found(scene: Scene) -> None:
    (taken,) = [
        row
        for row in scene.evidence.rows("received")
        if row["webhook_id"] == message_id(scene.delivery)
    ]
    again = await scene.findings(receipts_cover_the_outbox, taken)
    assert again == []

    (found,) = await scene.findings(receipts_cover_the_outbox, taken | {"type": "job.failed"})
    assert message_id(scene.delivery) in found


async def test_a_message_that_came_again_is_counted_and_is_no_finding(scene: Scene) -> None:
    first = next(scene.evidence.rows("received"))
    twice = replace(scene.evidence, history=[*scene.evidence.history, first])
    assert (duplicates(scene.evidence), duplicates(twice)) == (0, 1)


async def test_a_signature_that_does_not_hold_is_found(scene: Scene) -> None:
    forged = next(scene.evidence.rows("received")) | {"verified": False}
    (found,) = await scene.findings(receipts_cover_the_outbox, forged)
    assert "a signature that does not hold" in found


# J


class Served(Evidence):
    """Evidence whose server is a function from paths to answers."""

    answers: Any = None

    @asynccontextmanager
    async def http(self, org: str) -> AsyncIterator[httpx2.AsyncClient]:
        def respond(request: httpx2.Request) -> httpx2.Response:
            status, body = self.answers(request.url.path)
            return httpx2.Response(status, json=body)

        transport = httpx2.MockTransport(respond)
        async with httpx2.AsyncClient(transport=transport, base_url="http://server") as client:
            yield client


def _served(scene: Scene, org: str, answers: Any) -> Served:
    given = scene.evidence
    served = Served(given.history, given.sql, given.dsn, given.folder, keys={org: "key"})
    served.answers = answers
    return served


async def test_a_foreign_id_that_is_answered_otherwise_than_an_absent_one_is_found(
    scene: Scene,
) -> None:
    absent = (404, {"code": "job_not_found", "detail": "there is no such job"})
    assert await tenants_are_apart(_served(scene, "other", lambda path: absent)) == []

    def leaks(path: str) -> tuple[int, Any]:
        known = path.endswith(spelt(scene.completed)) and path.startswith("/tasks")
        return (403, {"code": "not_yours"}) if known else absent

    (found,) = await tenants_are_apart(_served(scene, "other", leaks))
    assert "other asked speech for" in found.detail
    assert "not_yours" in found.detail


async def test_a_job_that_is_shown_otherwise_than_it_is_is_found(scene: Scene) -> None:
    states = {spelt(scene.failed): "failed"}

    def honest(path: str) -> tuple[int, Any]:
        return 200, {"state": states.get(path.rpartition("/")[2], "completed")}

    assert await shown_as_it_is(_served(scene, ORG, honest)) == []

    states.clear()
    (found,) = await shown_as_it_is(_served(scene, ORG, honest))
    assert "is failed, and is shown as completed" in found.detail


async def test_a_webhook_that_was_asked_for_and_never_came_is_found(scene: Scene) -> None:
    job = spelt(scene.completed)
    call = {"call": 900, "surface": "gateway", "operation": "submit", "org": ORG, "key": "k"}
    asked = {"t": 1.0, "kind": "invoked", "job": None, "webhooks": ["/hook/a/gateway/1"]} | call
    ok = {"t": 1.1, "kind": "ok", "status": 202, "job": "01M7"} | call
    came = {"t": 2.0, "kind": "received", "webhook_id": "m", "type": "job.completed"}
    came |= {"path": "/hook/a/gateway/1", "job": "01M7"}

    assert await scene.findings(requested_webhooks_arrived, asked, ok, came) == []
    (found,) = await scene.findings(requested_webhooks_arrived, asked, ok, came | {"job": job})
    assert found.endswith("asked for a webhook to /hook/a/gateway/1, and none came for 01M7")


# K


async def test_a_token_that_began_two_works_is_found(scene: Scene) -> None:
    spawn = {"t": 1.0, "kind": "upstream", "event": "spawned", "token": "t", "live": 1}
    assert await scene.findings(one_live_execution, spawn | {"id": "1"}, spawn | {"id": "1"}) == []

    found = await scene.findings(
        one_live_execution, spawn | {"id": "1"}, spawn | {"id": "2", "live": 2}
    )
    assert "spawned while 1 for the same job ran on" in found[0]
    assert "began ['1', '2']" in found[1]


@pytest.mark.parametrize(
    ("before", "is_found"),
    [(["lost"], False), (["failed"], False), (["running"], True), (["lost", "completed"], True)],
)
async def test_work_that_is_begun_again_without_need_is_found(
    scene: Scene, before: list[str], is_found: bool
) -> None:
    spawn = {"t": 1.0, "kind": "upstream", "event": "spawned", "live": 1}
    first = spawn | {"token": "a", "id": "1", "fresh": True, "before": []}
    again = first | {"fresh": False, "before": ["running"]}
    second = spawn | {"token": "b", "id": "2", "fresh": True, "before": before}
    found = await scene.findings(one_live_execution, first, again, second)
    assert len(found) == is_found
    for each in found:
        assert f"2 was spawned after works of the same job: {', '.join(before)}" in each


# L


async def test_a_rescue_that_a_fault_explains_is_none_that_is_found(scene: Scene) -> None:
    process = {"t": -500.0, "kind": "process", "name": "worker-1", "pid": 77, "phase": "begin"}
    fault = {"kind": "fault", "name": "pause", "target": "worker-1", "number": 1}
    struck = [fault | {"t": 50.0, "phase": "begin"}, fault | {"t": 70.0, "phase": "end"}]
    await scene.sql.execute("UPDATE worker_history SET name = 'host:77'")

    assert await scene.findings(no_false_rescue, process, *struck) == []
    elsewhere = [row | {"target": "worker-2"} for row in struck]
    (found,) = await scene.findings(no_false_rescue, process, *elsewhere)
    assert "nothing had happened to it" in found
    killed = process | {"t": 3.0, "phase": "end", "code": -9}
    assert await scene.findings(no_false_rescue, process, killed) == []
    another = killed | {"pid": 78}
    assert len(await scene.findings(no_false_rescue, process, another)) == 1
    # Whoever was told to stop had to give back what it held.
    drained = [row | {"name": "drain"} for row in struck]
    assert len(await scene.findings(no_false_rescue, process, *drained)) == 1


async def test_a_job_that_was_taken_from_a_dead_worker_needs_a_dead_process(scene: Scene) -> None:
    """Who was paused is not dead, and neither is who ended only later."""
    process = {"t": -500.0, "kind": "process", "name": "worker-1", "pid": 77, "phase": "begin"}
    fault = {"kind": "fault", "name": "pause", "target": "worker-1", "number": 1}
    paused = [fault | {"t": 0.0, "phase": "begin"}, fault | {"t": 1e9, "phase": "end"}]
    await scene.sql.execute("UPDATE worker_history SET name = 'host:77'")
    transaction = scene.sql.transaction()
    await transaction.start()
    try:
        await scene.spoil("UPDATE job_history SET died = true WHERE crashes > 0")
        (found,) = await scene.findings(no_false_rescue, process, *paused)
        assert "as dead, which it was not" in found
        killed = process | {"t": 3.0, "phase": "end", "code": -9}
        assert await scene.findings(no_false_rescue, process, killed) == []
        later = killed | {"t": 1e9}
        assert len(await scene.findings(no_false_rescue, process, later)) == 1
    finally:
        await transaction.rollback()


async def test_who_is_heard_of_is_excused_only_by_a_trouble_that_has_just_ended(
    scene: Scene,
) -> None:
    process = {"t": -500.0, "kind": "process", "name": "worker-1", "pid": 77, "phase": "begin"}
    fault = {"kind": "fault", "name": "pause", "target": "worker-1", "number": 1}
    await scene.sql.execute("UPDATE worker_history SET name = 'host:77'")
    await scene.spoil("UPDATE job_history SET silent = 0.3 WHERE crashes > 0")
    (taken,) = await scene.sql.fetch(
        "SELECT extract(epoch FROM at) AS at FROM job_history WHERE crashes > 0"
    )
    (began,) = [row["wall"] for row in scene.evidence.history if row["kind"] == "began"]
    at = float(taken["at"]) - began

    def ended(seconds_before: float) -> list[Row]:
        end = at - seconds_before
        return [fault | {"t": end - 9, "phase": "begin"}, fault | {"t": end, "phase": "end"}]

    assert await scene.findings(no_false_rescue, process, *ended(1.0)) == []
    (found,) = await scene.findings(no_false_rescue, process, *ended(4.0))
    assert "heard of 0.30 s ago" in found


async def test_a_process_that_was_at_work_and_ended_by_itself_is_found(
    scene: Scene, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker-1-1.log").write_text("worker ready\nand then it broke\n")
    (tmp_path / "logs" / "worker-2-1.log").write_text("error: PostgreSQL cannot be reached\n")
    rows: list[Row] = []
    for pid, name in enumerate(("worker-1", "worker-2")):
        process = {"t": 1.0, "kind": "process", "name": name, "pid": pid}
        rows.append(process | {"phase": "begin", "log": f"{name}-1.log"})
        rows.append(process | {"phase": "end", "code": 1, "expected": False})

    (found,) = await nobody_ends_by_itself(replace(scene.evidence, history=rows, folder=tmp_path))
    assert "worker-1 ended by itself with 1" in found.detail
    assert "and then it broke" in found.detail


async def test_a_drain_that_ends_badly_or_not_at_all_is_found(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    rows: list[Row] = [{"t": 9.0, "kind": "stuck", "name": "server-1", "signal": "SIGTERM"}]
    for pid, (struck, code) in enumerate([("SIGTERM", 1), ("SIGTERM", 0), ("SIGKILL", -9)]):
        (tmp_path / "logs" / f"{pid}.log").write_text("worker ready\n")
        process = {"t": 1.0, "kind": "process", "name": f"worker-{pid}", "pid": pid}
        rows.append(process | {"phase": "begin", "log": f"{pid}.log"})
        rows.append(process | {"phase": "end", "code": code, "expected": True, "struck": struck})

    found = await nobody_ends_by_itself(replace(scene.evidence, history=rows, folder=tmp_path))
    assert "worker-0 was told to stop and ended with 1" in found[0].detail
    assert [each.detail for each in found[1:]] == [
        "server-1 did not end, long after it got SIGTERM"
    ]


async def test_a_job_that_completed_without_having_run_is_found(
    scene: Scene, tmp_path: Path
) -> None:
    history = History(tmp_path / "history.ndjson")
    note_execution(str(history.executions), uuid=scene.completed.hex)
    history.close()
    async with scene.sql.transaction():
        await scene.spoil(
            "UPDATE jobs SET endpoint = 'chaos.post__x' WHERE id = ANY($1)",
            [scene.completed, scene.rescued],
        )
        evidence = replace(scene.evidence, path=history.path)
        (found,) = await completed_jobs_were_executed(evidence)
        await scene.spoil(
            "UPDATE jobs SET endpoint = $1 WHERE endpoint = 'chaos.post__x'", ENDPOINT
        )
    assert spelt(scene.rescued) in found.detail


async def test_a_result_of_another_than_the_holder_is_found(scene: Scene, tmp_path: Path) -> None:
    history = History(tmp_path / "history.ndjson")
    history.note("process", name="worker-1", pid=77, phase="begin")
    history.note("process", name="worker-2", pid=78, phase="begin")
    for name, pid in (("held", 77), ("stale", 78), ("child", 79)):
        note_execution(str(history.executions), uuid=name, execution=name, pid=pid)
    history.close()
    evidence = replace(scene.evidence, history=read(history.path), path=history.path)

    async def found(execution: str, attempt: int) -> list[str]:
        result = json.dumps({"execution": execution, "attempt": attempt}).encode()
        transaction = scene.sql.transaction()
        await transaction.start()
        try:
            await scene.spoil("UPDATE worker_history SET name = 'host:77'")
            await scene.spoil("UPDATE job_history SET endpoint = 'chaos.x' WHERE id = $1",
                              scene.completed)  # fmt: skip
            await scene.spoil("UPDATE jobs SET result = $2 WHERE id = $1", scene.completed, result)
            return [finding.detail for finding in await results_are_of_the_holder(evidence)]
        finally:
            await transaction.rollback()

    assert await found("held", 1) == await found("child", 1) == []
    (stale,) = await found("stale", 1)
    assert "was held by worker-1 (process 77), and completed with the result of worker-2" in stale
    (early,) = await found("held", 2)
    assert "completed at attempt 1 with the result of attempt 2" in early


# Recovery


async def test_how_long_it_took_to_go_on_is_read_off_the_logs_and_the_claims(
    scene: Scene, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    began = datetime(2026, 1, 1, tzinfo=UTC)
    ready = {"time": (began + timedelta(seconds=14)).isoformat(), "message": "worker ready"}
    (tmp_path / "logs" / "worker-1-2.log").write_text(json.dumps(ready) + "\n")
    claimed_at = await scene.sql.fetchval(
        "SELECT min(at) FROM job_history WHERE after = 'dispatching'"
    )
    first_claim = (claimed_at - began).total_seconds()

    def process(name: str, t: float, phase: str) -> Row:
        return {"kind": "process", "name": name, "t": t, "phase": phase, "log": f"{name}-2.log"}

    history = [
        {"t": 0.0, "kind": "began", "wall": began.timestamp()},
        process("worker-1", 10.0, "end"),
        process("worker-1", 11.0, "begin"),
        process("postgres", 1.0, "begin"),
        process("postgres", first_claim - 5.0, "end"),
        process("postgres", first_claim - 2.5, "begin"),
    ]
    found = await recoveries(replace(scene.evidence, history=history, folder=tmp_path))
    assert found["from the end of a process to the next at work, longest (s)"] == 4.0
    assert found["from PostgreSQL's return to the first claim, median (s)"] == 2.5


# Validity


async def test_a_run_in_which_nothing_struck_is_invalid(scene: Scene) -> None:
    asked = replace(scene.evidence, asked={"pause", "cut"}, surfaces=("gateway", "llm"))
    assert what_is_missing(asked) == [
        "no cut ever struck",
        "no pause ever struck",
        "no result ever came too late: nothing shows that stale holders are refused",
        "nothing was acknowledged by llm",
    ]


async def test_a_run_with_everything_in_it_is_valid(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    line = json.dumps({"message": TOO_LATE, "job_id": "j"})
    (tmp_path / "logs" / "worker-1-1.log").write_text(f"{line}\nTraceback: {TOO_LATE}\n")
    fault = {"t": 1.0, "kind": "fault", "name": "pause", "target": "worker-1", "phase": "end"}
    evidence = replace(
        scene.evidence,
        history=[*scene.evidence.history, fault | {"effect": 1}],
        folder=tmp_path,
        asked={"pause"},
        surfaces=("gateway", "batches"),
    )
    assert refused_results(evidence) == ["j"]
    assert what_is_missing(evidence) == []
    met_nothing = replace(evidence, history=[*scene.evidence.history, fault | {"effect": 0}])
    assert what_is_missing(met_nothing) == ["no pause ever struck"]


# What is forgotten


async def test_what_is_not_removed_when_its_time_is_up_is_found(scene: Scene) -> None:
    await scene.spoil(
        """
        INSERT INTO uploads (org_id, id, owner, blob_key, expires_at, used_by)
        VALUES ($1, $2, 'o', 'uploads/x', 'infinity', $2)
        """,
        ORG,
        scene.batch,
    )
    verdict = await forget_and_look(scene.evidence, Verdict(), limit_seconds=0)

    (found,) = verdict.findings
    left = "6 jobs, 3 expiries, 1 unsuccessful, 1 ended_tasks, 1 batches, 1 uploads"
    assert found == Finding("forgotten", "G", f"left when their time was up: {left}")
    # The batch would take it along: it is not forgotten on its own as long as that is there.
    (upload,) = await scene.evidence.sql.fetch("SELECT expires_at > now() AS kept FROM uploads")
    assert upload["kept"]
    assert verdict.counts["canary hits"] == 0
    # Nobody had handed a canary in, so that none was found says nothing.
    assert verdict.invalid == [
        "no canary is in the tables before they are deleted",
        "no canary is in the blobs before they are deleted",
    ]


async def test_a_blob_that_is_recorded_as_deleted_and_is_there_is_found(
    scene: Scene, tmp_path: Path
) -> None:
    await scene.spoil(
        """
        INSERT INTO input_copies (org_id, job_id, layer, place, deleted_at, mechanism, expires_at)
        VALUES ($1, $2, 'blob', 'inputs/x/whole', now(), 'worker', now()),
               ($1, $2, 'blob', 'inputs/x/gone', now(), 'worker', now())
        """,
        ORG,
        scene.completed,
    )
    piece = tmp_path / "blobs" / "inputs" / "x" / "whole" / "00000"
    piece.parent.mkdir(parents=True)
    piece.write_bytes(b"a piece")

    (found,) = await deleted_is_gone(replace(scene.evidence, folder=tmp_path))
    assert found.detail == "inputs/x/whole/00000 is there, and recorded as deleted"


async def test_what_waits_is_sampled_and_so_is_a_database_that_is_away(
    scene: Scene, tmp_path: Path
) -> None:
    history = History(tmp_path / "history.ndjson")
    sampler = Sampler(scene.evidence.dsn, history)
    async with sampler:
        await sampler.sample()
    await Sampler("postgresql://nobody@127.0.0.1:1/none", history).sample()
    history.close()

    samples = [row for row in read(history.path) if row["kind"] == "sample"]
    assert {"queued": 0, "held": 0, "reachable": True}.items() <= samples[0].items()
    assert samples[-1]["reachable"] is False
