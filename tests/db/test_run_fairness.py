"""Runs take turns first, then the flows within each; and none hides the work behind it."""

from __future__ import annotations

from collections import Counter

from coatcheck.core.queries import claims
from coatcheck.domain.limits import QUEUES_SCANNED_MAX, RUN_QUEUES_SCANNED_MAX
from tests.db.claimer import Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import put_queue
from tests.db.run_rows import key_of, let_pass, put_run, run_of

MANY = [f"host-{number:05}" for number in range(1_000)]
SLOW = 0.01
STEP_SECONDS = 1 / SLOW


async def test_a_run_of_one_flow_has_as_large_a_share_as_one_of_a_thousand(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    large = await put_run(connection, 2, keys=MANY, concurrency=1_000)
    small = await put_run(connection, 100, concurrency=1_000)
    plain = await put_run(connection, 100, keys=["only"], key_per_second=1_000.0)
    claimed = await worker.claim_limited(30)
    assert Counter(map(run_of, claimed)) == {large: 10, small: 10, plain: 10}


async def test_permits_that_runs_share_go_round_the_runs(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    """One at a time, drawn by lot: the chance that one of two has none of 64 is 2 ** -63."""
    runs = {
        await put_run(connection, 100, keys=MANY[:50], org="a", concurrency=100),
        await put_run(connection, 100, org="a", concurrency=100),
    }
    await connection.execute("INSERT INTO concurrency_limits VALUES ('a', 'org', '', 1)")
    served = set()
    for _ in range(64):
        (job,) = await worker.claim_limited(10)
        served.add(run_of(job))
        await worker.complete(job)
    assert served == runs


async def test_the_flows_of_a_run_share_what_it_gets(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_run(connection, 50, keys=["a", "b", "c"], concurrency=1_000)
    claimed = await worker.claim_limited(12)
    assert Counter(map(key_of, claimed)) == {"a": 4, "b": 4, "c": 4}


async def test_every_key_has_a_start_before_any_has_its_second(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    keys = ["a", "b", "c", "d", "e"]
    await put_run(connection, 5, keys=keys, per_second=SLOW, key_per_second=SLOW)
    started = []
    for _ in range(3 * len(keys)):
        (job,) = await worker.claim_limited(10)
        started.append(key_of(job))
        await let_pass(connection, STEP_SECONDS)
    assert [sorted(started[at : at + 5]) for at in (0, 5, 10)] == [keys] * 3


async def test_keys_without_a_rate_all_have_their_turn(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_run(connection, 5, keys=["a", "b", "c"], per_second=SLOW)
    started = []
    for _ in range(6):
        (job,) = await worker.claim_limited(10)
        started.append(key_of(job))
        await let_pass(connection, STEP_SECONDS)
    assert started == ["a", "b", "c"] * 2


async def test_a_run_of_many_flows_is_passed_in_one_step(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    """More flows than one claim looks at come before the only one that is under no limit."""
    many = [f"{number}" for number in range(2 * QUEUES_SCANNED_MAX)]
    await put_run(connection, 1, keys=many, org="a", concurrency=0)
    await put_queue(connection, 1, org="b")
    (job,) = await worker.claim(1)
    assert job.org == "b"


async def test_a_run_that_waits_does_not_hide_those_behind_it(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    many = [f"{number}" for number in range(2 * QUEUES_SCANNED_MAX)]
    await put_run(connection, 1, keys=many, org="a", concurrency=0)
    behind = await put_run(connection, 1, org="b", per_second=1.0)
    (job,) = await worker.claim_limited(1)
    assert run_of(job) == behind


async def test_a_flow_behind_many_that_wait_is_found_without_waiting_for_a_poll(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    """Each look goes on where the last one ended, and asks to be followed by the next."""
    waiting = [f"{number:05}" for number in range(5 * RUN_QUEUES_SCANNED_MAX)]
    run = await put_run(connection, 2, keys=waiting, key_per_second=0.001)
    while await worker.claim_limited(500):
        pass
    await let_pass(connection, 10)  # what was looked through in vain is looked through again
    await put_run(connection, 1, keys=["99999"], run=run, key_per_second=0.001)
    for _ in range(6):
        order = worker.order(10)
        claimed = await claims.claim_limited(worker.line, order)
        if claimed:
            break
        assert order.look_again_seconds == 0
    assert list(map(key_of, claimed)) == ["99999"]


async def test_after_a_look_in_vain_there_is_a_pause_and_then_another(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    run = await put_run(connection, 2, keys=MANY[:100], key_per_second=0.001)
    assert len(await worker.claim_limited(500)) == 100
    assert await worker.claim_limited(500) == []
    await connection.execute("UPDATE run_tokens SET next_look_at = now() + interval '1 hour'")
    await put_run(connection, 1, keys=["new"], run=run, key_per_second=0.001)
    order = worker.order(500)
    assert await claims.claim_limited(worker.line, order) == []
    assert 0 < (order.look_again_seconds or 0) <= 3_600
    await connection.execute("UPDATE run_tokens SET next_look_at = now()")
    (job,) = await worker.claim_limited(500)
    assert key_of(job) == "new"


async def test_with_room_for_one_the_lot_is_drawn_among_those_that_can_start(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    """Runs that wait for a token take no turn, however many they are."""
    for _ in range(20):
        await put_run(connection, 2, keys=["a"], key_per_second=0.001)
    assert len(await worker.claim_limited(500)) == 20
    for _ in range(5):
        ready = await put_run(connection, 1, keys=["a"], key_per_second=0.001)
        (job,) = await worker.claim_limited(1)
        assert run_of(job) == ready


async def test_keys_that_are_due_and_have_no_work_do_not_hide_those_behind_them(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    run = await put_run(connection, 1, keys=MANY[:100], key_per_second=0.001)
    await put_run(connection, 2, keys=["last"], run=run, key_per_second=0.001)
    assert len(await worker.claim_limited(500)) == 101
    await connection.execute(
        """
        UPDATE run_tokens
        SET in_step_at = now() - CASE WHEN flow LIKE '%/last' THEN interval '0' ELSE '1 hour' END,
            next_look_at = now() + interval '1 hour'
        """
    )
    for _ in range(6):
        order = worker.order(1)
        claimed = await claims.claim_limited(worker.line, order)
        if claimed:
            break
        assert order.look_again_seconds == 0
    assert list(map(key_of, claimed)) == ["last"]
