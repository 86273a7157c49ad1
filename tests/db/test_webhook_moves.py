"""The outbox: a row for every move of a job that somebody is to be told of, and for no other."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from coatcheck.core.queries import leases, sql, webhooks
from coatcheck.db.connection import Connection
from coatcheck.domain.ids import new_id
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.states import HELD, WAITING, State, TransitionEvent, after
from coatcheck.domain.webhooks import EVENTS, INTERNAL, WebhookScope, target_id
from tests.db.claimer import KEEP_COMPLETED_SECONDS, Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.events_on_a_database import happen
from tests.db.plans import columns, explain
from tests.db.rows import ENDPOINT, ORG, put_job, state_of
from tests.db.test_transitions import LEGAL, ripe_for

END, STATES, SHOWN = (
    target_id(ORG, f"https://{name}.test/") for name in ("end", "states", "shown")
)


async def put_endpoint(
    connection: AsyncpgConnection, *events: str, org: str = ORG, **others: Any
) -> UUID:
    endpoint = new_id()
    row = {
        "org_id": org,
        "id": endpoint,
        "url": "https://e.test/",
        "events": list(events),
        **others,
    }
    names, numbers = ", ".join(row), ", ".join(f"${at}" for at in range(1, len(row) + 1))
    await connection.execute(
        f"INSERT INTO webhook_targets ({names}) VALUES ({numbers})", *row.values()
    )
    return endpoint


async def put_told_job(
    connection: AsyncpgConnection, state: State, told: dict[UUID, WebhookScope], **others: Any
) -> ClaimedJob:
    job = await put_job(connection, state, webhook=int(max(told.values())), **others)
    for target, tells in told.items():
        await webhooks.upsert_targets(connection, [(ORG, target, f"https://{target}.test/")])
        await connection.execute(
            "INSERT INTO job_webhooks (org_id, job_id, target_id, tells) VALUES ($1, $2, $3, $4)",
            ORG,
            job.uuid,
            target,
            int(tells),
        )
    return job


async def told(connection: AsyncpgConnection, target: UUID) -> list[dict[str, Any]]:
    rows = await connection.fetch(
        "SELECT * FROM webhook_deliveries WHERE target_id = $1 ORDER BY id", target
    )
    return [dict(row) | {"facts": json.loads(row["facts"])} for row in rows]


def is_a_phase(state: State, final: State) -> bool:
    """Whether the move changes what the job's caller is shown."""
    if final is State.CANCEL_REQUESTED:
        return False
    return final not in WAITING or state in HELD


@pytest.mark.parametrize(("state", "event"), LEGAL)
async def test_every_move_is_told_once_with_the_states_before_and_after(
    state: State, event: TransitionEvent, connection: AsyncpgConnection, worker: Claimer
) -> None:
    final = after(state, event)
    assert final is not None
    endpoint = await put_endpoint(connection, *EVENTS)
    both = {END: WebhookScope.THE_END, STATES: WebhookScope.EVERY_STATE}
    jobs = [
        await put_told_job(connection, state, both, **ripe_for(event)),
        await put_told_job(connection, state, {SHOWN: WebhookScope.PHASES}, **ripe_for(event)),
    ]
    silent = await put_job(connection, state, org_id="others", **ripe_for(event))
    for job in [*jobs, silent]:
        await happen(event, job, worker)
        await happen(event, job, worker)  # said again, it changes nothing
    job, shown_job = jobs

    async def moves(target: UUID, of: ClaimedJob) -> list[tuple[Any, ...]]:
        rows = [row for row in await told(connection, target) if row["subject_id"] == of.uuid]
        facts = [row["facts"] for row in rows]
        return [
            (row["event"], row["subject_kind"], fact["previous"], fact["state"], fact["as"])
            for row, fact in zip(rows, facts, strict=True)
        ]

    def move(as_what: str) -> tuple[Any, ...]:
        return (f"job.{final}", "job", state.value, final.value, as_what)

    assert await state_of(connection, job) is final
    assert await moves(STATES, job) == [move("state")]
    assert await moves(END, job) == ([move("end")] if final.terminal else [])
    assert await moves(endpoint, job) == [move("endpoint")]
    assert await moves(SHOWN, shown_job) == ([move("phase")] if is_a_phase(state, final) else [])
    rows = await connection.fetch("SELECT DISTINCT org_id FROM webhook_deliveries")
    assert [row["org_id"] for row in rows] == [ORG], "the other organisation has no webhooks"


async def test_facts_say_what_the_row_may_no_longer_say(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    told_states = {STATES: WebhookScope.EVERY_STATE}
    job = await put_told_job(connection, State.QUEUED, told_states, failures=1, flow="line")
    (claimed,) = await worker.claim(1)
    await leases.mark_started(worker.line, [(claimed, 0.1)])
    await worker.settle(claimed, TransitionEvent.RETRY, code="broke")
    assert [row["facts"] for row in await told(connection, STATES)] == [
        {
            "state": state,
            "previous": previous,
            "attempt": 2,
            "endpoint": ENDPOINT,
            "flow": "line",
            "as": "state",
        }
        | ({"error_code": "broke"} if state == "retrying" else {})
        for previous, state in (
            ("queued", "dispatching"),
            ("dispatching", "processing"),
            ("processing", "retrying"),
        )
    ]
    assert {row["subject_id"] for row in await told(connection, STATES)} == {job.uuid}


async def test_a_claim_under_a_limit_is_told_as_any_other(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await connection.execute(
        "INSERT INTO concurrency_limits (org_id, scope, name, held_max) VALUES ($1, 'org', '', 1)",
        ORG,
    )
    await put_told_job(connection, State.QUEUED, {STATES: WebhookScope.EVERY_STATE})
    assert len(await worker.claim_limited(1)) == 1
    (row,) = await told(connection, STATES)
    assert row["event"] == "job.dispatching"


@pytest.mark.parametrize(
    "event",
    [TransitionEvent.CLAIM, TransitionEvent.START, TransitionEvent.COMPLETE, TransitionEvent.RETRY],
)
async def test_what_is_rolled_back_was_neither_done_nor_told(
    event: TransitionEvent, connection: AsyncpgConnection, worker: Claimer
) -> None:
    begins = State.QUEUED if event is TransitionEvent.CLAIM else State.DISPATCHING
    endpoint = await put_endpoint(connection, *EVENTS)
    job = await put_told_job(connection, begins, {STATES: WebhookScope.EVERY_STATE})

    class Undone(Exception):
        pass

    async def undo(its: AsyncpgConnection) -> None:
        class Within(Connection):
            """The worker's statements, in a transaction that is not committed."""

            def __init__(self) -> None:
                pass

            async def fetch(self, query: str, *arguments: Any) -> Any:
                return await its.fetch(query, *arguments)

        async with its.transaction():
            within = Claimer(Within(), worker.boot, worker.endpoints)
            await happen(event, job, within)
            assert await its.fetchval("SELECT count(*) FROM webhook_deliveries") == 2
            raise Undone

    with pytest.raises(Undone):
        await worker.line.run(undo)
    assert await state_of(connection, job) is begins
    assert await told(connection, STATES) == await told(connection, endpoint) == []


async def test_an_endpoint_is_told_what_it_names_and_no_more(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    ends = await put_endpoint(connection, "job.completed", "job.failed")
    starts = await put_endpoint(connection, "job.processing")
    paused = await put_endpoint(connection, "job.failed", paused_at=(await now(connection)))
    theirs = await put_endpoint(connection, *EVENTS, org="others")
    gone = await put_endpoint(connection, *EVENTS)
    await connection.execute(
        "UPDATE webhook_targets SET events = NULL, disabled_at = now(), deleted_at = now()"
        " WHERE id = $1",
        gone,
    )
    completed = await put_job(connection, State.DISPATCHING)
    failed = await put_job(connection, State.DISPATCHING)
    cancelled = await put_job(connection, State.CANCEL_REQUESTED)
    await leases.mark_started(worker.line, [(completed, 0.1)])
    await worker.complete(completed)
    await worker.settle(failed, TransitionEvent.FAIL)
    await worker.settle(cancelled, TransitionEvent.ACKNOWLEDGE_CANCEL)

    async def heard(endpoint: UUID) -> list[tuple[str, UUID]]:
        return [(row["event"], row["subject_id"]) for row in await told(connection, endpoint)]

    assert await heard(ends) == [("job.completed", completed.uuid), ("job.failed", failed.uuid)]
    assert await heard(starts) == [("job.processing", completed.uuid)]
    assert await heard(paused) == [("job.failed", failed.uuid)], "it is noted, and waits"
    assert await heard(theirs) == await heard(gone) == []


async def test_of_tasks_an_endpoint_is_told_failures_if_it_says_so(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    jobs_only = await put_endpoint(connection, *(EVENTS - {"task.failed"}))
    tasks = await put_endpoint(connection, "task.failed")
    run = new_id()
    held = [
        await put_job(connection, State.PROCESSING, run_id=run, task_index=at, flow=run.hex)
        for at in range(2)
    ]
    await worker.complete(held[0])
    await worker.settle(held[1], TransitionEvent.FAIL)
    assert await told(connection, jobs_only) == []
    (row,) = await told(connection, tasks)
    assert (row["event"], row["subject_kind"]) == ("task.failed", "task")
    assert (row["subject_id"], row["run_id"]) == (held[1].uuid, run)
    assert "flow" not in row["facts"]


async def test_endpoints_are_sent_nothing_of_internal_jobs(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    endpoint = await put_endpoint(connection, *EVENTS)
    await worker.complete(await put_job(connection, State.PROCESSING, webhook=INTERNAL))
    assert await told(connection, endpoint) == []


async def test_without_any_webhook_a_claim_looks_once_whether_there_is_an_endpoint(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    for _ in range(50):
        await put_job(connection)
    held = [await put_job(connection, State.PROCESSING) for _ in range(50)]
    plan = await exchange_plan(worker, held)
    assert plan.indexes("webhook_targets") == {"webhook_targets_endpoints"}
    assert sum(scan["Actual Loops"] for scan in plan.scans("webhook_targets")) == 1
    for table in ("job_webhooks", "runs"):
        assert {scan["Actual Loops"] for scan in plan.scans(table)} == {0}, table


async def test_with_endpoints_each_job_finds_those_of_its_organisation_by_their_index(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    for number in range(200):
        await put_endpoint(connection, "job.completed", org=f"org {number}")
    await put_endpoint(connection, "job.completed")
    held = [await put_job(connection, State.PROCESSING) for _ in range(50)]
    plan = await exchange_plan(worker, held)
    assert plan.indexes("webhook_targets") == {"webhook_targets_endpoints"}
    assert plan.rows_read("webhook_targets") == 1 + 50


async def exchange_plan(worker: Claimer, held: list[ClaimedJob]) -> Any:
    done = columns([(job.org, job.uuid, job.lease, b"1", 0.5, 2) for job in held])
    order = worker.order(100).arguments(limited=False)
    return await worker.line.run(
        lambda it: explain(it, sql("claims/exchange"), *order, *done, KEEP_COMPLETED_SECONDS, [])
    )


async def now(connection: AsyncpgConnection) -> Any:
    return await connection.fetchval("SELECT now()")
