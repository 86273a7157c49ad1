"""A deleted batch goes to its last row and blob, in small steps, while others work on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import artifact_key, upload_key
from coatcheck.blobs.pieces import store_pieces
from coatcheck.core.queries import usage
from coatcheck.db.connection import Connection
from coatcheck.db.notifications import Notifier
from coatcheck.domain.errors import BlobStoreUnavailable
from coatcheck.domain.ids import new_id, to_text
from coatcheck.domain.states import State, TransitionEvent
from coatcheck.maintenance.usage import UsageRollup
from coatcheck.products.batches import maintenance
from coatcheck.products.batches.maintenance import BatchCanceller, BatchRemover, RunCompleter
from coatcheck.products.batches.model import export_key, list_key
from coatcheck.products.batches.queries import sql
from coatcheck.products.batches.repository import BatchRepository
from tests.db.claimer import Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.long_runs import LongRun, put_long_run, rows_left
from tests.db.plans import explain_query
from tests.db.rows import ORG, put_queue

ENDED = [State.COMPLETED, State.FAILED, State.CANCELLED]
DEPLOYMENT = new_id()
TICKS_MAX = 1_000


@pytest.fixture
async def notifier(dsn: str) -> AsyncIterator[Notifier]:
    opened = Connection(dsn, name="test notify")
    notifier = Notifier(opened)
    yield notifier
    await notifier.drain()
    await opened.close()


@pytest.fixture
async def worker(dsn: str) -> AsyncIterator[Claimer]:
    async with claimer(dsn) as registered:
        yield registered


@pytest.fixture
def folder(tmp_path: Any) -> BlobContainer:
    return BlobContainer.open((tmp_path / "blobs").as_uri())


async def delete(batches: BatchRepository, made: LongRun) -> None:
    await batches.delete(to_text(made.batch), org=made.org)


async def keys_of(container: BlobContainer) -> set[str]:
    return {
        key
        for prefix in ("artifacts", "uploads", "lists", "exports")
        async for page in container.keys_under(prefix)
        for key in page
    }


async def remove(
    connection: AsyncpgConnection, remover: BatchRemover, *, most: int = TICKS_MAX
) -> int:
    """Tick until no deleted batch is left. How often."""
    for ticks in range(most):
        if not await connection.fetchval("SELECT count(*) FROM batches WHERE deleted_at <= now()"):
            return ticks
        await remover.tick()
    raise AssertionError(f"there are still batches to remove after {most} ticks")


async def give_blobs(
    connection: AsyncpgConnection, container: BlobContainer, made: LongRun
) -> set[str]:
    """Artifacts, an export, a streamed list and an upload. The keys of all blobs of them."""

    async def content() -> AsyncIterator[bytes]:
        yield b"12345678"

    artifacts = [artifact_key(DEPLOYMENT, made.task(index)) for index in (0, 1, 1_500, 2_999)]
    for at, key in enumerate(artifacts):
        await container.put(key, b"an artifact")
        await connection.execute(
            "INSERT INTO artifacts VALUES ($1, $2, $3, $4, 'text/plain', 11, '')",
            ORG,
            made.task((0, 1, 1_500, 2_999)[at]),
            f"file {at}",
            key,
        )
    await connection.execute(
        "INSERT INTO job_events (org_id, job_id, kind, data, write_id)"
        " VALUES ($1, $2, 'log', '', 1)",
        ORG,
        made.task(1),
    )
    export = export_key(DEPLOYMENT, made.batch, new_id())
    await container.put(export, b"a zip")
    for state, key in (("completed", export), ("pending", None)):
        await connection.execute(
            "INSERT INTO batch_exports (org_id, id, batch_id, run_id, state, blob_key, bytes,"
            " sha256) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            ORG,
            new_id(),
            made.batch,
            made.run,
            state,
            key,
            None if key is None else 5,
            None if key is None else b"",
        )
    listed = list_key(DEPLOYMENT, made.batch, made.part)
    pieces = await store_pieces(container, listed, content(), piece_bytes=4)
    upload = new_id()
    uploaded = upload_key(DEPLOYMENT, upload)
    await container.put(uploaded, b"a list")
    await connection.execute(
        "INSERT INTO uploads (org_id, id, owner, blob_key, expires_at, used_by)"
        " VALUES ($1, $2, '', $3, now() + interval '1 day', $4)",
        ORG,
        upload,
        uploaded,
        made.batch,
    )
    await connection.execute(
        "UPDATE batch_parts SET source = 'pieces', source_key = $2 WHERE id = $1",
        made.part,
        listed,
    )
    await connection.execute(
        "INSERT INTO batch_parts (org_id, id, batch_id, run_id, position, source, upload_id,"
        " source_key, state) VALUES ($1, $2, $3, $4, 2, 'upload', $5, $6, 'done')",
        ORG,
        new_id(),
        made.batch,
        made.run,
        upload,
        uploaded,
    )
    await connection.execute(
        "INSERT INTO batch_bad_lines VALUES ($1, $2, 1, 'not_json', 'no JSON')", ORG, made.part
    )
    assert pieces.pieces == 2
    return {*artifacts, export, uploaded, f"{listed}/00000", f"{listed}/00001"}


async def test_nothing_is_left_of_a_deleted_batch_in_any_table_or_store(
    batches: BatchRepository,
    container: BlobContainer,
    connection: AsyncpgConnection,
    line: Connection,
    notifier: Notifier,
) -> None:
    made = await put_long_run(connection, ENDED * 1_000)
    other = await put_long_run(connection, ENDED)
    kept = artifact_key(DEPLOYMENT, other.task(0))
    await container.put(kept, b"of another batch")
    given = await give_blobs(connection, container, made)
    assert await keys_of(container) == {kept, *given}
    await delete(batches, made)
    await remove(connection, BatchRemover(line, notifier, container))
    assert await rows_left(connection, made) == {}
    assert await keys_of(container) == {kept}
    assert (await rows_left(connection, other))["jobs"] == 3


async def test_a_live_run_is_cancelled_first_and_removed_when_its_last_task_has_stopped(
    batches: BatchRepository,
    folder: BlobContainer,
    connection: AsyncpgConnection,
    line: Connection,
    notifier: Notifier,
    worker: Claimer,
) -> None:
    made = await put_long_run(connection, [State.QUEUED] * 30, latched=False, part_state="pending")
    (held,) = await worker.claim(1)
    # As retention or an older version would: nothing but the mark.
    await connection.execute("UPDATE batches SET deleted_at = now()")
    remover, canceller = BatchRemover(line, notifier, folder), BatchCanceller(line, notifier)
    await remover.tick()
    assert await worker.claim(5) == [] == await worker.claim_limited(5), "it is stopped at once"
    await canceller.tick()
    for _ in range(3):
        await remover.tick()
    assert (await rows_left(connection, made))["jobs"] == 30, "one task still runs"
    assert await worker.settle(held, TransitionEvent.ACKNOWLEDGE_CANCEL) is State.CANCELLED
    for _ in range(3):
        await remover.tick()
    assert "jobs" not in await rows_left(connection, made)
    assert "batches" in await rows_left(connection, made), "what it used is not summed up yet"
    await UsageRollup(line, notifier).tick()
    await RunCompleter(line, notifier).tick()
    await remove(connection, remover)
    assert await rows_left(connection, made) == {}
    assert await connection.fetchval("SELECT sum(cancelled) FROM usage") == 30


async def test_what_the_tasks_used_is_summed_up_under_the_usage_flow_of_their_run(
    batches: BatchRepository,
    folder: BlobContainer,
    connection: AsyncpgConnection,
    line: Connection,
    notifier: Notifier,
    worker: Claimer,
) -> None:
    made = await put_long_run(connection, [State.QUEUED] * 3)
    await connection.execute("UPDATE runs SET usage_flow = 'docs.v1'")
    await worker.complete(*await worker.claim(3))
    await delete(batches, made)
    remover = BatchRemover(line, notifier, folder)
    for _ in range(5):
        await BatchCanceller(line, notifier).tick()
        await remover.tick()
    assert (await rows_left(connection, made)).keys() == {"batches", "runs", "run_limits"}
    await usage.roll_up(line, 1_000)
    await remove(connection, remover)
    assert await connection.fetch("SELECT flow, completed FROM usage") == [("docs.v1", 3)]
    assert await rows_left(connection, made) == {}


@pytest.mark.parametrize("retention", ["ended", "not ended"])
async def test_a_batch_goes_when_its_retention_ends(
    batches: BatchRepository,
    folder: BlobContainer,
    connection: AsyncpgConnection,
    line: Connection,
    notifier: Notifier,
    retention: str,
) -> None:
    made = await put_long_run(connection, ENDED * 10)
    await connection.execute(
        "UPDATE batches SET idempotency_key = 'k', expires_at = now() + $1 * interval '1 second'",
        0 if retention == "ended" else 60,
    )
    remover = BatchRemover(line, notifier, folder)
    await remover.tick()
    await remove(connection, remover)
    assert (await rows_left(connection, made) == {}) == (retention == "ended")
    listed = [view.uuid for view in await batches.list(ORG, owner=None)]
    assert listed == ([] if retention == "ended" else [made.batch])


async def test_a_store_that_is_away_loses_no_blob_and_is_tried_again(
    batches: BatchRepository,
    folder: BlobContainer,
    connection: AsyncpgConnection,
    line: Connection,
    notifier: Notifier,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = await put_long_run(connection, ENDED * 1_000)
    await give_blobs(connection, folder, made)
    await delete(batches, made)
    other = await put_long_run(connection, ENDED)
    await delete(batches, other)
    remover = BatchRemover(line, notifier, folder)
    working = folder.delete
    refused: set[str] = set()

    async def refuse_once(keys: list[str]) -> None:
        if not refused.issuperset(keys):
            refused.update(keys)
            raise BlobStoreUnavailable("away")
        await working(keys)

    monkeypatch.setattr(folder, "delete", refuse_once)
    with pytest.raises(BlobStoreUnavailable):
        await remover.tick()
    assert "jobs" not in await rows_left(connection, other), "it holds up no other"
    for _ in range(TICKS_MAX):
        with contextlib.suppress(BlobStoreUnavailable):
            await remover.tick()
        if not await connection.fetchval("SELECT count(*) FROM batches"):
            break
    assert len(refused) == 8
    assert await keys_of(folder) == set()
    assert await rows_left(connection, made) == {}


async def test_ten_thousands_of_tasks_go_in_small_steps_while_others_claim(
    batches: BatchRepository,
    folder: BlobContainer,
    connection: AsyncpgConnection,
    line: Connection,
    notifier: Notifier,
    worker: Claimer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = await put_long_run(connection, ENDED * 10_000)
    await put_queue(connection, 400, org="globex")
    await delete(batches, made)
    remover = BatchRemover(line, notifier, folder)
    done = 0
    ticks = 0
    while await connection.fetchval("SELECT count(*) FROM batches"):
        ticks += 1
        before = await connection.fetchval("SELECT count(*) FROM jobs WHERE org_id = $1", ORG)
        removing = asyncio.create_task(remover.tick())
        done += await worker.complete(*await worker.claim(10))
        await removing
        after = await connection.fetchval("SELECT count(*) FROM jobs WHERE org_id = $1", ORG)
        assert before - after <= maintenance.TASKS_MAX
    assert ticks >= 30
    assert done >= 300, "every claim found its work"
    assert await rows_left(connection, made) == {}


async def test_a_batch_that_cannot_go_yet_holds_up_no_other(
    batches: BatchRepository,
    folder: BlobContainer,
    connection: AsyncpgConnection,
    line: Connection,
    notifier: Notifier,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "BATCHES_MAX", 2)
    stuck = [await put_long_run(connection, [State.PROCESSING]) for _ in range(3)]
    free = [await put_long_run(connection, ENDED) for _ in range(3)]
    for each in (*stuck, *free):
        await delete(batches, each)
    remover = BatchRemover(line, notifier, folder)
    for _ in range(30):
        await remover.tick()
    for each in free:
        assert await rows_left(connection, each) == {}
    for each in stuck:
        assert (await rows_left(connection, each))["jobs"] == 1


async def test_a_step_reads_the_tasks_that_it_removes(
    connection: AsyncpgConnection, line: Connection
) -> None:
    await put_long_run(connection, ENDED * 2_000)
    made = await put_long_run(connection, ENDED * 2_000)
    await connection.execute("VACUUM ANALYZE jobs, artifacts, job_events")
    chunk = [made.task(index) for index in range(5_900, 6_000)]
    for statement, arguments in (
        ("task_blobs", {"ids": chunk}),
        (
            "delete_tasks",
            {"run": made.run, "ids": chunk, "tasks_before": 6_000, "tasks_after": 5_900},
        ),
        ("runs", {"batch": made.batch}),
    ):
        plan = await line.run(
            lambda it, statement=statement, arguments=arguments: explain_query(
                it, sql, f"removal/{statement}", org=ORG, **arguments
            )
        )
        for table in ("jobs", "artifacts", "job_events"):
            assert plan.sequential_scans(table) == 0, statement
        assert plan.rows_read("jobs") <= 100, statement
