"""Claims of llm jobs, on a real database: bound to targets, by turns, within every limit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from coatcheck.core.queries import claims as core_claims
from coatcheck.core.queries import jobs, leases, maintenance, reports, webhooks
from coatcheck.core.queries.limits import set_limit
from coatcheck.db.connection import Connection
from coatcheck.domain.job import ClaimedJob, ConcurrencyLimit
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import CRASHES_MAX
from coatcheck.domain.states import State, TransitionEvent
from coatcheck.domain.webhooks import target_id
from coatcheck.products.llm import queries, repository
from tests.db.claimer import KEEP_FAILED_SECONDS
from tests.db.edge_guard import AsyncpgConnection
from tests.db.events_on_a_database import fall_silent
from tests.db.llm_claims import (
    CHAT,
    GENERATE,
    TURN_SECONDS,
    LlmClaimer,
    llm_claimer,
    offer,
    put_chats,
)
from tests.db.rows import (
    ENDPOINT,
    ORG,
    connected,
    expire,
    put_job,
    put_queue,
    recorded,
    row_of,
    state_of,
)

URL = "https://example.com/"
PHASES = 4


@pytest.fixture
async def claims(dsn: str) -> AsyncIterator[LlmClaimer]:
    async with llm_claimer(dsn) as it:
        yield it


async def put_chat(
    connection: AsyncpgConnection, model: str = "a:1", state: State = State.QUEUED, **columns: Any
) -> ClaimedJob:
    return await put_job(connection, state, **({"endpoint": CHAT, "flow": model} | columns))


async def test_a_target_is_given_as_many_jobs_as_it_may_have(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await put_chats(connection, 5, "a:1")
    held = await claims.claim(offer(concurrency=3))
    assert len(held) == 3
    assert await claims.claim(offer(concurrency=3)) == []
    await claims.worker.complete(held[0].job)
    assert len(await claims.claim(offer(concurrency=3))) == 1


async def test_a_claimed_job_is_dispatching_under_the_lease_of_its_claim(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    job = await put_chat(connection, "a:1", timeout_seconds=7.0, payload=b'{"x":1}')
    (held,) = await claims.claim(offer())
    row = await row_of(connection, job)
    assert (row["state"], row["lease"]) == ("dispatching", held.job.lease)
    assert row["run_deadline"] - row["dispatched_at"] == timedelta(seconds=7)
    assert (held.job.uuid, held.job.queue_key, held.job.payload) == (job.uuid, "a:1", b'{"x":1}')
    assert (held.job.attempt, held.job.lane, held.job.endpoint) == (1, Lane.STANDARD, CHAT)
    assert (held.target, held.loading, held.had_output) == ("gpu", True, False)


@pytest.mark.parametrize("state", [each for each in State if each is not State.QUEUED])
async def test_only_a_queued_job_is_claimed(
    state: State, connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    job = await put_chat(connection, state=state)
    assert await claims.claim(offer(concurrency=9)) == []
    assert await state_of(connection, job) is state


async def test_only_llm_jobs_are_claimed(connection: AsyncpgConnection, claims: LlmClaimer) -> None:
    await put_queue(connection, 1, flow="a:1", endpoint=ENDPOINT)
    await put_chats(connection, 1, "a:1", endpoint=GENERATE)
    assert [held.job.endpoint for held in await claims.claim(offer(concurrency=9))] == [GENERATE]


async def test_the_oldest_of_a_line_go_first_also_when_two_targets_share_it(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    began = datetime.now(UTC) - timedelta(hours=1)
    line = [
        await put_chat(connection, run_at=began + timedelta(seconds=number)) for number in range(5)
    ]
    held = await claims.claim(offer("one", 2), offer("two", 1))
    assert [it.job.uuid for it in held] == [job.uuid for job in line[:3]]
    assert Counter(it.target for it in held) == {"one": 2, "two": 1}


async def test_a_worker_without_room_in_a_lane_leaves_its_jobs(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await put_chats(connection, 3, "a:1", lane=Lane.URGENT)
    await put_chats(connection, 3, "a:1")
    held = await claims.claim(offer(concurrency=9), urgent=0, room=2)
    assert [it.job.lane for it in held] == [Lane.STANDARD] * 2
    assert await claims.claim(offer(concurrency=9), urgent=0, room=0) == []


async def test_no_more_is_taken_than_was_asked_for_when_others_hold_a_lock_on_the_first(
    dsn: str, connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    """As a cancellation does, in the moment between. The claim does not wait for it."""
    job = await put_chat(connection)
    async with connected(dsn) as rival, rival.transaction():
        await rival.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", job.uuid)
        assert await claims.claim(offer()) == []
    assert await connection.fetchval("SELECT count(*) FROM llm_targets") == 0, "no turn began"
    assert len(await claims.claim(offer())) == 1


async def test_a_claim_says_whether_there_may_be_more_to_take(
    connection: AsyncpgConnection, claims: LlmClaimer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is told that there is not has no need to ask again, and somebody waits meanwhile."""
    monkeypatch.setattr(queries, "JOBS_PER_QUEUE_MAX", 2)
    await put_chats(connection, 5, "a:1")
    told = []
    for _ in range(4):
        held = await claims.claim(offer(concurrency=9))
        told.append((len(held), claims.may_have_left_some))
    assert told == [(2, True), (2, True), (1, False), (0, False)]

    await put_chats(connection, 5, "a:1")
    assert len(await claims.claim(offer(concurrency=6))) == 1
    assert not claims.may_have_left_some, "no permit is left"


async def test_one_claim_makes_so_many_picks_and_leaves_the_rest_to_the_next(
    connection: AsyncpgConnection, claims: LlmClaimer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many permits are free: others wait for the lock."""
    monkeypatch.setattr(queries, "PICKS_PER_LANE_MAX", 2)
    for number in range(5):
        await put_chats(connection, 1, "a:1", org=f"org{number}")
    told = []
    for _ in range(3):
        held = await claims.claim(offer(concurrency=9))
        told.append((len(held), claims.may_have_left_some))
    assert told == [(2, True), (2, True), (1, False)]


async def test_a_claim_that_fails_leaves_no_transaction_open(
    connection: AsyncpgConnection, claims: LlmClaimer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_chats(connection, 1, "a:1")
    with monkeypatch.context() as broken:
        broken.setattr(queries, "PICKS_PER_LANE_MAX", "many")
        with pytest.raises(TypeError):
            await claims.claim(offer())
    locks = await connection.fetchval(
        "SELECT count(*) FROM pg_locks JOIN pg_database AS d ON d.oid = database"
        " WHERE locktype = 'advisory' AND d.datname = current_database()"
    )
    assert locks == 0, "others may claim"
    assert len(await claims.claim(offer())) == 1


# Turns


async def test_a_turn_is_remembered_from_claim_to_claim(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await put_chats(connection, 3, "b:1", org="beta")
    await put_chats(connection, 3, "a:1", org="alpha")
    (first,) = await claims.claim(offer())
    assert first.loading
    for _ in range(2):
        await claims.worker.complete(first.job)
        (again,) = await claims.claim(offer(resident=[first.job.queue_key]))
        assert (again.job.queue_key, again.loading) == (first.job.queue_key, False)
        first = again


async def test_a_turn_that_is_over_goes_to_the_model_that_waits(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await put_chats(connection, 4, "b:1")
    await put_chats(connection, 4, "a:1")
    served = []
    for _ in range(8):
        (held,) = await claims.claim(offer(), turn_seconds=0.0)
        served.append(held.job.queue_key)
        await claims.worker.complete(held.job)
    assert sorted(served[:2]) == ["a:1", "b:1"]
    assert served == served[:2] * 4


async def test_organisations_are_remembered_from_claim_to_claim(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    for org in ("one", "two", "three"):
        await put_chats(connection, 2, "a:1", org=org)
    served = []
    for _ in range(6):
        (held,) = await claims.claim(offer())
        served.append(held.job.org)
        await claims.worker.complete(held.job)
    assert len({*served[:3]}) == 3
    assert served[3:] == served[:3]


async def test_after_four_urgent_jobs_another_one_goes(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await put_chats(connection, 20, "a:1", lane=Lane.URGENT)
    await put_chats(connection, 20, "a:1")
    served = []
    for _ in range(10):
        (held,) = await claims.claim(offer())
        served.append(held.job.lane)
        await claims.worker.complete(held.job)
    assert served == ([Lane.URGENT] * 4 + [Lane.STANDARD]) * 2


async def test_an_organisation_that_holds_a_slot_gets_none_of_those_kept_for_others(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    for org in ("old", "new"):
        await put_chats(connection, 2, "a:1", org=org)
    order = claims.worker.order(9, holders=["old"])
    held = await queries.claim(
        claims.worker.line, order, [offer(concurrency=9)], turn_seconds=TURN_SECONDS
    )
    assert {it.job.org for it in held} == {"new"}


@pytest.mark.parametrize(
    "of_number",
    [lambda number: (f"org {number}", "a:1"), lambda number: (ORG, f"model:{number}")],
    ids=["organisations", "models of one organisation"],
)
async def test_with_more_lines_than_a_claim_looks_at_all_have_their_turn(
    of_number: Callable[[int], tuple[str, str]],
    connection: AsyncpgConnection,
    claims: LlmClaimer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core_claims, "QUEUES_SCANNED_MAX", 3)
    lines = {of_number(number) for number in range(10)}
    for org, model in lines:
        await put_chats(connection, 5, model, org=org)
    served = set()
    for _ in range(20):
        (held,) = await claims.claim(offer(), turn_seconds=0.0)
        served.add((held.job.org, held.job.queue_key))
        await claims.worker.complete(held.job)
    assert served == lines


# Assignments


async def assignment(line: Connection, org: str, job: UUID) -> repository.Assignment | None:
    found = await repository.assignments(line, [(org, job)])
    return found.get((org, job))


async def test_an_assignment_is_current_while_its_worker_holds_the_job(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await put_chats(connection, 1, "a:1")
    (held,) = await claims.claim(offer("first"))
    job, line = held.job, claims.worker.line
    assert await assignment(line, ORG, job.uuid) == repository.Assignment("first", True, True)
    assert await assignment(line, "other org", job.uuid) is None

    await claims.worker.settle(job, TransitionEvent.UNREACHABLE, delay=0.0)
    assert await assignment(line, ORG, job.uuid) == repository.Assignment("first", True, False)

    await maintenance.queue_due(line, 10)
    (held,) = await claims.claim(offer("second", resident=["a:1"]))
    assert await assignment(line, ORG, job.uuid) == repository.Assignment("second", False, True)
    await claims.worker.complete(held.job)
    assert await assignment(line, ORG, job.uuid) == repository.Assignment("second", False, False)


async def test_a_job_that_nobody_claimed_has_no_assignment(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    job = await put_chat(connection)
    assert await assignment(claims.worker.line, ORG, job.uuid) is None


async def test_the_permits_of_a_dead_worker_come_back_when_its_jobs_are_rescued(
    dsn: str, connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await put_chats(connection, 5, "a:1")
    async with llm_claimer(dsn) as dying:
        assert len(await dying.claim(offer(concurrency=2))) == 2
        await fall_silent(dying.worker)
    assert await claims.claim(offer(concurrency=2)) == []
    rescued = await maintenance.rescue(
        claims.worker.line,
        crashes_max=CRASHES_MAX,
        keep_failed_seconds=KEEP_FAILED_SECONDS,
        rows_max=10,
    )
    assert len(rescued) == 2
    assert len(await claims.claim(offer(concurrency=2))) == 2


async def test_an_assignment_of_an_earlier_claim_uses_no_permit(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await put_chats(connection, 1, "a:1")
    (held,) = await claims.claim(offer())
    await claims.worker.settle(held.job, TransitionEvent.RELEASE)
    (again,) = await claims.worker.claim(1)  # by somebody who binds it to no target
    assert again.uuid == held.job.uuid
    await put_chats(connection, 1, "a:1")
    assert len(await claims.claim(offer())) == 1
    known = await assignment(claims.worker.line, ORG, again.uuid)
    assert known == repository.Assignment("gpu", True, current=False)


async def test_a_job_that_is_to_be_cancelled_keeps_its_permit_until_its_worker_has_stopped(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await put_chats(connection, 2, "a:1")
    (held,) = await claims.claim(offer())
    await jobs.cancel(claims.worker.line, ORG, held.job.uuid, KEEP_FAILED_SECONDS)
    assert await claims.claim(offer()) == []
    await claims.worker.settle(held.job, TransitionEvent.ACKNOWLEDGE_CANCEL)
    assert len(await claims.claim(offer())) == 1


async def test_a_claim_whose_answer_was_lost_is_given_back_with_its_permit(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await put_chats(connection, 1, "a:1")
    (lost,) = await claims.claim(offer())
    await leases.release_claim(claims.worker.line, lost.job.lease, KEEP_FAILED_SECONDS)
    (found,) = await claims.claim(offer())
    assert found.job.uuid == lost.job.uuid


async def test_an_assignment_goes_with_its_job(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await put_chats(connection, 2, "a:1")
    gone, kept = await claims.claim(offer(concurrency=2))
    await claims.worker.complete(gone.job, kept.job)
    await expire(connection, gone.job.uuid)
    await maintenance.prune(claims.worker.line, 10)
    rows = await connection.fetch("SELECT job_id FROM llm_assignments")
    assert [row["job_id"] for row in rows] == [kept.job.uuid]


async def test_it_is_known_whether_an_earlier_attempt_has_sent_output(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await put_chats(connection, 1, "a:1")
    for kind, had_output in (("log", False), ("json", False), ("json", True)):
        (held,) = await claims.claim(offer())
        assert held.had_output is had_output
        await reports.add_events(claims.worker.line, [(held.job, kind, b"{}")], write_id=1)
        await claims.worker.settle(held.job, TransitionEvent.RELEASE)


# Targets that cannot be reached


async def test_nothing_is_claimed_for_a_target_that_is_away(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await put_chats(connection, 3, "a:1")
    await repository.mark_unreachable(claims.worker.line, "gpu", "refused", 60.0)
    assert await claims.claim(offer(concurrency=2)) == []
    held = await claims.claim(offer(concurrency=2), offer("other"))
    assert [it.target for it in held] == ["other"]


async def test_one_job_finds_out_whether_a_target_is_back_if_nobody_else_does(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await put_chats(connection, 5, "a:1")
    await repository.mark_unreachable(claims.worker.line, "gpu", "refused", 0.0)
    # It is being tried right now: a target that is asleep takes its time to say nothing.
    assert await claims.claim(offer(concurrency=3)) == []
    await repository.mark_unreachable(claims.worker.line, "gpu", "refused", -60.0)
    assert await claims.claim(offer(concurrency=0)) == []
    (probe,) = await claims.claim(offer(concurrency=3))
    assert await claims.claim(offer(concurrency=3)) == []

    await claims.worker.complete(probe.job)
    assert await repository.mark_reachable(claims.worker.line, "gpu") == 0
    assert len(await claims.claim(offer(concurrency=3))) == 3


async def test_what_is_known_of_a_target_that_is_away_is_kept_until_it_answers(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    line = claims.worker.line
    await repository.mark_unreachable(line, "gpu", "refused", 60.0)
    (first,) = await repository.target_states(line)
    await repository.mark_unreachable(line, "gpu", "no route", 120.0)
    (second,) = await repository.target_states(line)
    assert second.unreachable_since == first.unreachable_since
    assert (first.last_error, second.last_error) == ("refused", "no route")
    assert first.next_try_at is not None
    assert second.next_try_at is not None
    assert second.next_try_at > first.next_try_at

    await put_chats(connection, 1, "a:1")
    await claims.claim(offer("fine"))
    await repository.mark_reachable(line, "gpu")
    assert await repository.target_states(line) == [
        repository.TargetState("fine", None, None, None),
        repository.TargetState("gpu", None, None, None),
    ]


async def test_jobs_that_wait_for_a_target_are_due_when_one_is_back(
    connection: AsyncpgConnection, claims: LlmClaimer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "RETRIED_AT_ONCE", 2)
    line = claims.worker.line
    await put_chats(connection, 5, "a:1")
    for held in await claims.claim(offer(concurrency=5)):
        await claims.worker.settle(
            held.job, TransitionEvent.UNREACHABLE, code="target_unreachable", delay=3_600.0
        )
    later = datetime.now(UTC) + timedelta(hours=1)
    others = [
        await put_chat(connection, state=State.RETRYING, error_code="target_error", run_at=later),
        await put_chat(
            connection,
            state=State.RETRYING,
            error_code="target_unreachable",
            run_at=later,
            endpoint=ENDPOINT,
        ),
        await put_chat(connection, state=State.STAGED, run_at=later),
    ]
    assert await maintenance.queue_due(line, 10) == []

    assert await repository.mark_reachable(line, "gpu") == 5
    assert await repository.mark_reachable(line, "gpu") == 0
    assert len(await maintenance.queue_due(line, 10)) == 5
    assert [await state_of(connection, job) for job in others] == [
        State.RETRYING,
        State.RETRYING,
        State.STAGED,
    ]


# Limits that somebody set


@pytest.mark.parametrize(
    "limit",
    [
        ConcurrencyLimit(ORG, "org", "", 2),
        ConcurrencyLimit(ORG, "flow", "a:1", 2),
        ConcurrencyLimit(ORG, "endpoint", CHAT, 2),
        ConcurrencyLimit("*", "endpoint", CHAT, 2),
    ],
    ids=["organisation", "model", "endpoint of an organisation", "endpoint"],
)
async def test_a_concurrency_limit_holds_for_llm_jobs(
    limit: ConcurrencyLimit, connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await set_limit(claims.worker.line, limit)
    await put_chats(connection, 5, "a:1")
    await put_chats(connection, 1, "b:1", org="other", endpoint=GENERATE)
    held = await claims.claim(offer(concurrency=9))
    assert Counter(it.job.org for it in held) == {ORG: 2, "other": 1}
    assert await claims.claim(offer(concurrency=9)) == []
    await claims.worker.complete(*(it.job for it in held))
    assert len(await claims.claim(offer(concurrency=9))) == 2


async def test_a_limit_of_an_organisation_counts_its_other_jobs_too(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await set_limit(claims.worker.line, ConcurrencyLimit(ORG, "org", "", 3))
    await put_chats(connection, 5, "a:1")
    for _ in range(2):
        await put_job(connection, State.PROCESSING)
    assert len(await claims.claim(offer(concurrency=9))) == 1


# Who is told


async def put_told_chat(connection: AsyncpgConnection, model: str) -> ClaimedJob:
    """One whose webhook is sent its phases."""
    target = target_id(ORG, URL)
    await webhooks.upsert_targets(connection, [(ORG, target, URL)])
    job = await put_chat(connection, model, webhook=PHASES)
    await connection.execute(
        "INSERT INTO job_webhooks (org_id, job_id, target_id, tells) VALUES ($1, $2, $3, $4)",
        ORG,
        job.uuid,
        target,
        PHASES,
    )
    return job


async def test_loading_is_told_and_what_is_loaded_already_is_not(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    told = {
        model: (await put_told_chat(connection, model)).uuid for model in ("loaded:1", "other:1")
    }
    assert len(await claims.claim(offer(concurrency=2, resident=["loaded:1"]))) == 2
    (row,) = await connection.fetch("SELECT * FROM webhook_deliveries")
    assert (row["subject_id"], row["event"]) == (told["other:1"], "job.dispatching")
    facts = json.loads(row["facts"])
    assert facts["as"] == "phase"
    assert (facts["previous"], facts["state"], facts["flow"]) == (
        "queued",
        "dispatching",
        "other:1",
    )


@pytest.mark.parametrize("resident", [["a:1"], []])
async def test_a_claim_that_was_not_told_is_given_back_without_a_word(
    resident: list[str], connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await put_told_chat(connection, "a:1")
    (assigned,) = await claims.claim(offer(resident=resident))
    await claims.worker.settle(assigned.job, TransitionEvent.UNREACHABLE, code="target_unreachable")
    rows = await connection.fetch("SELECT event FROM webhook_deliveries ORDER BY id")
    words = [] if resident else ["job.dispatching", "job.retrying"]
    assert [row["event"] for row in rows] == words


async def test_drops_are_counted_once_for_each_claim_and_over_all_of_them(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await put_chat(connection)
    line = claims.worker.line
    for drops in (1, 2, 3):
        (held,) = await claims.claim(offer())
        job = held.job
        # Sent again after its answer was lost.
        for _ in range(2):
            assert await repository.count_drop(line, job.org, job.uuid, job.lease) == drops
        await claims.worker.settle(job, TransitionEvent.POSTPONE)
        await connection.execute(recorded("UPDATE jobs SET run_at = now(), state = 'queued'"))
    row = await row_of(connection, job)
    assert (row["failures"], row["crashes"]) == (0, 0)
    assert (row["interruptions"], row["unreachables"]) == (0, 0)


async def test_a_drop_of_who_holds_the_job_no_longer_does_not_count(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await put_chat(connection)
    line = claims.worker.line
    (stale,) = await claims.claim(offer())
    await claims.worker.settle(stale.job, TransitionEvent.RELEASE)
    key = (stale.job.org, stale.job.uuid)
    assert await repository.count_drop(line, *key, stale.job.lease) is None
    (held,) = await claims.claim(offer())
    assert await repository.count_drop(line, *key, stale.job.lease) is None
    assert (
        await repository.count_drop(line, "somebody-else", stale.job.uuid, held.job.lease) is None
    )
    assert await repository.count_drop(line, *key, held.job.lease) == 1
