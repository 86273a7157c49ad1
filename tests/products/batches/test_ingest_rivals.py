"""Several who take the same list in, as after a lost lease: each task is written once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coatcheck.db.connection import Connection
from coatcheck.domain.errors import TargetUnreachable
from coatcheck.domain.ids import new_id, to_text
from coatcheck.products.batches import ingest as ingesting
from coatcheck.products.batches import ingest_repository as ingest
from coatcheck.products.batches.ingest import Ingester, IngestRequest
from coatcheck.products.batches.ingest_repository import Overtaken, TaskBlock, TaskChunk, encode
from coatcheck.products.batches.model import IngestSnapshot, NewPart, NewTask, task_id
from tests.db.blocking import until_blocked
from tests.products.batches.ingest_deployment import ORG, IngestDeployment


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[IngestDeployment]:
    async with IngestDeployment(dsn, tmp_path) as opened:
        yield opened


@pytest.fixture
async def other_line(dsn: str) -> AsyncIterator[Connection]:
    line = Connection(dsn, name="a rival")
    yield line
    await line.close()


def block(*inputs: bytes) -> TaskBlock:
    size = sum(len(given) + 1 for given in inputs)
    return TaskBlock(inputs, [None] * len(inputs), None, [], len(inputs), size)


async def chunk_of(order: IngestSnapshot, *blocks: TaskBlock) -> TaskChunk:
    return await encode(order, order.run_tasks, blocks)


async def order_of(deployment: IngestDeployment, part: NewPart) -> IngestSnapshot:
    found = await ingest.read_snapshot(deployment.ingest_connection, ORG, part.uuid)
    assert found is not None
    return found


async def test_a_chunk_is_written_once_whoever_else_has_the_same_order(
    deployment: IngestDeployment,
) -> None:
    new, part = await deployment.create(b"1\n2\n3\n")
    order = await order_of(deployment, part)
    await ingest.write_chunk(
        deployment.ingest_connection, order, await chunk_of(order, block(b"1", b"2")), is_last=False
    )

    with pytest.raises(Overtaken):
        await ingest.write_chunk(
            deployment.ingest_connection,
            order,
            await chunk_of(order, block(b"1", b"2")),
            is_last=False,
        )

    assert [task["payload"] for task in await deployment.tasks(new.run)] == [b"1", b"2"]
    assert (await deployment.run_row(new.run))["tasks"] == 2
    assert (await deployment.part_row(part))["source_offset"] == 4


async def test_a_chunk_without_tasks_is_counted_once_as_well(deployment: IngestDeployment) -> None:
    new, part = await deployment.create(b"oops\n1\n")
    order = await order_of(deployment, part)
    bad = TaskBlock((), (), None, (), 1, 5)
    await ingest.write_chunk(
        deployment.ingest_connection, order, await chunk_of(order, bad), is_last=False
    )

    with pytest.raises(Overtaken):
        await ingest.write_chunk(
            deployment.ingest_connection, order, await chunk_of(order, bad), is_last=False
        )
    assert (await deployment.run_row(new.run))["lines"] == 1


async def test_of_two_that_write_a_chunk_at_once_the_second_writes_nothing(
    deployment: IngestDeployment, other_line: Connection
) -> None:
    new, part = await deployment.create(b"1\n2\n")
    order = await order_of(deployment, part)
    async with deployment.sql.transaction():
        # Whoever wants to move the run on waits for us, with its rows written.
        await deployment.sql.execute("SELECT FROM runs WHERE id = $1 FOR UPDATE", new.run)
        writes = [
            asyncio.create_task(
                ingest.write_chunk(
                    line, order, await chunk_of(order, block(b"1", b"2")), is_last=True
                )
            )
            for line in (deployment.ingest_connection, other_line)
        ]
        await until_blocked(deployment.sql, "coatcheck tests ingest")
        await until_blocked(deployment.sql, "coatcheck a rival")
    results = await asyncio.gather(*writes, return_exceptions=True)

    assert sorted(type(result).__name__ for result in results) == ["Overtaken", "TaskChunk"]
    assert len(await deployment.tasks(new.run)) == 2
    assert (await deployment.run_row(new.run))["tasks"] == 2


async def test_a_cancellation_that_comes_between_leaves_a_chunk_unwritten(
    deployment: IngestDeployment, other_line: Connection
) -> None:
    new, part = await deployment.create(b"1\n2\n")
    order = await order_of(deployment, part)

    async with deployment.sql.transaction():
        await deployment.sql.execute(
            "UPDATE runs SET cancel_requested_at = now() WHERE id = $1", new.run
        )
        writing = asyncio.create_task(
            ingest.write_chunk(other_line, order, await chunk_of(order, block(b"1")), is_last=False)
        )
        await until_blocked(deployment.sql, "coatcheck a rival")
    with pytest.raises(Overtaken):
        await writing

    assert await deployment.tasks(new.run) == []
    assert (await deployment.run_row(new.run))["tasks"] == 0


async def test_two_who_take_a_list_in_side_by_side_write_each_task_once(
    deployment: IngestDeployment, other_line: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingesting, "CHUNK_LINES", 1)
    lines = [b'{"n":%d,"pad":"%s"}' % (n, b"x" * 500) for n in range(20_000)]
    new, part = await deployment.create(b"\n".join(lines))
    request = IngestRequest(ORG, part.uuid)
    await asyncio.gather(
        deployment.ingester().ingest(request),
        Ingester(other_line, deployment.blobs, deployment.notifier).ingest(request),
    )

    tasks = await deployment.tasks(new.run)
    assert [task["payload"] for task in tasks] == lines
    assert [task["id"].bytes for task in tasks] == [
        task_id(new.run, index) for index in range(20_000)
    ]
    row = await deployment.run_row(new.run)
    assert (row["tasks"], row["total"], row["lines"]) == (20_000, 20_000, 20_000)


async def test_tasks_added_while_a_list_comes_in_stand_between_its_own(
    deployment: IngestDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingesting, "CHUNK_LINES", 1)
    lines = [b'{"n":%d,"pad":"%s"}' % (n, b"x" * 500) for n in range(2_000)]
    new, part = await deployment.create(b"\n".join(lines), is_open=True)
    write = ingest.write_chunk
    added = 0

    async def with_others_between(
        line: Connection, order: IngestSnapshot, chunk: TaskChunk, **how: Any
    ) -> TaskChunk:
        nonlocal added
        written = await write(line, order, chunk, **how)
        if added < 3:
            added += 1
            await deployment.batches.add(
                ORG,
                new.uuid,
                NewPart(new_id(), "inline"),
                [NewTask(b'"added"')],
            )
        return written

    monkeypatch.setattr(ingest, "write_chunk", with_others_between)
    await deployment.ingest(part)
    await deployment.batches.close(to_text(new.uuid), org=ORG)

    payloads = [task["payload"] for task in await deployment.tasks(new.run)]
    assert [payload for payload in payloads if payload != b'"added"'] == lines
    assert len(payloads) == 2_003
    assert payloads.index(b'"added"') > 0
    assert (await deployment.run_row(new.run))["total"] == 2_003


async def test_a_list_comes_in_however_fast_others_add_tasks(
    deployment: IngestDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each chunk would be overtaken, if those who add did not have to wait for it."""
    new, part = await deployment.create(b"1\n2\n", is_open=True)
    write = ingest.write_chunk

    async def overtaken_unless_locking(
        line: Connection, order: IngestSnapshot, chunk: TaskChunk, **how: Any
    ) -> TaskChunk:
        await deployment.batches.add(ORG, new.uuid, NewPart(new_id(), "inline"), [NewTask(b"0")])
        return await write(line, order, chunk, **how)

    monkeypatch.setattr(ingest, "write_chunk", overtaken_unless_locking)
    await deployment.ingest(part)

    payloads = [task["payload"] for task in await deployment.tasks(new.run)]
    assert payloads == [b"0", b"0", b"1", b"2"]


async def test_a_database_that_goes_away_costs_no_attempt(deployment: IngestDeployment) -> None:
    _, part = await deployment.create(b"1\n")
    await deployment.ingest(part)  # connected
    away = Connection("postgresql://nobody@127.0.0.1:1/nothing", name="away")

    with pytest.raises(TargetUnreachable):
        await Ingester(away, deployment.blobs, deployment.notifier).ingest(
            IngestRequest(ORG, part.uuid)
        )
