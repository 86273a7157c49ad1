"""Batches by both clients, against a whole Coatcheck: control plane, workers, upkeep, database."""

from __future__ import annotations

import json
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from coatcheck import Job, Service
from coatcheck.client import (
    BatchFailed,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
)
from coatcheck.client._async import batches as async_batches
from coatcheck.client._async import files as async_files
from coatcheck.client._sync import batches as sync_batches
from coatcheck.client._sync import files as sync_files
from coatcheck.client.task_lines import BODY_BYTES_MAX
from coatcheck.domain.tenants import Scope
from tests.client.conftest import Connect
from tests.client.flavours import Flavour
from tests.deployment import Deployment
from tests.waiting import eventually_async

WAIT_SECONDS = 60
STRANGER_ID = "01JAV8M2Q0XW3N5T7R9Y1B3D5F"


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with Deployment(dsn, tmp_path) as opened:
        opened.start_maintenance()
        await opened.start_batches_worker()
        yield opened


class Sums:
    """Squares numbers. Those that it was told to refuse fail, until it was told otherwise."""

    def __init__(self) -> None:
        self.service = Service("sums")
        self.refused: set[int] = set()
        self.squared: list[int] = []

        @self.service.post("/square", retries=0)
        async def square(job: Job, n: int) -> int:
            self.squared.append(n)
            if n in self.refused:
                job.fail("not this one", code="refused")
            return n * n


@pytest.fixture
async def sums(deployment: Deployment) -> Sums:
    sums = Sums()
    await deployment.start_worker(sums.service)
    return sums


@pytest.fixture
def client(connect: Connect, deployment: Deployment) -> Flavour:
    return connect(str(deployment.http.base_url), deployment.key)


def numbers(count: int) -> Iterator[dict[str, int]]:
    return ({"n": n} for n in range(count))


async def test_a_few_tasks_go_in_and_their_results_come_out(client: Flavour, sums: Sums) -> None:
    batch = await client.batches.submit(
        "sums",
        "/square",
        [*numbers(3), {"custom_id": "last", "input": {"n": 9}}],
        metadata={"a": 1},
    )
    assert (batch.counts.total, batch.is_open, batch.metadata) == (4, False, {"a": 1})
    assert await client.batches.wait(batch, WAIT_SECONDS) is batch
    assert (batch.status, batch.counts.succeeded, batch.ingest.lines) == ("completed", 4, 4)
    assert (batch.service, batch.endpoint, batch.progress) == ("sums", "/square", 1.0)
    assert batch.created_at <= batch.completed_at < batch.expires_at
    tasks = await client.batches.all("tasks", batch)
    assert [task.result for task in tasks] == [0, 1, 4, 81]
    assert [task.custom_id for task in tasks] == [None, None, None, "last"]
    whole = await client.batches.task(batch.id, tasks[3].id)
    assert (whole.input, whole.result, whole.terminal) == ({"n": 9}, 81, True)
    assert await client.batches.result(batch, tasks[3]) == 81
    assert [each.id for each in await client.batches.all("list_all")] == [batch.id]


@pytest.mark.parametrize("key", [None, "mine"])
async def test_a_long_list_is_taken_in_by_a_worker_and_comes_out_whole(
    client: Flavour, sums: Sums, tmp_path: Path, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_batches, "PAGE_ITEMS", 150)
    monkeypatch.setattr(sync_batches, "PAGE_ITEMS", 150)
    content = b"".join(b'{"n": %d}\n' % n for n in range(400))
    path = tmp_path / "tasks.ndjson"
    # Blank lines make it as long as a list that is staged.
    path.write_bytes(b"not json\n" + content + b"\n" * BODY_BYTES_MAX)
    sums.refused = {7, 8}
    batch = await client.batches.submit("sums", "/square", file=path, idempotency_key=key)
    await client.batches.wait(batch, WAIT_SECONDS)
    assert (batch.counts.total, batch.counts.succeeded, batch.counts.failed) == (400, 398, 2)
    assert batch.ingest.bad_lines == 1
    (bad,) = await client.batches.all("bad_lines", batch)
    assert bad.line == 1
    failed = await client.batches.all("tasks", batch, status="failed")
    assert [(task.index, task.error.code) for task in failed] == [(7, "refused"), (8, "refused")]
    assert len(await client.batches.all("tasks", batch)) == 400
    if key is not None:
        again = await client.batches.submit("sums", "/square", file=path, idempotency_key=key)
        assert (again.id, again.replayed, again.mismatch) == (batch.id, True, False)


async def test_an_open_batch_takes_tasks_until_it_is_closed(client: Flavour, sums: Sums) -> None:
    batch = await client.batches.submit("sums", "/square", is_open=True)
    assert (batch.is_open, batch.terminal, batch.counts.total) == (True, False, 0)
    await client.batches.add(batch, numbers(2), idempotency_key="once")
    await client.batches.add(batch, numbers(2), idempotency_key="once")
    await client.batches.add(batch.id, numbers(1_500))
    await client.batches.close(batch)
    await client.batches.wait(batch, WAIT_SECONDS)
    assert (batch.status, batch.counts.succeeded) == ("completed", 1_502)
    with pytest.raises(ConflictError) as raised:
        await client.batches.add(batch, [{"n": 1}])
    assert raised.value.code == "batch_not_open"


async def test_what_failed_is_run_again_as_a_run_that_names_its_parent(
    client: Flavour, sums: Sums
) -> None:
    sums.refused = {1, 2}
    batch = await client.batches.submit("sums", "/square", numbers(4))
    await client.batches.wait(batch, WAIT_SECONDS)
    first = batch.runs[-1]
    sums.refused, sums.squared = {2}, []
    await client.batches.rerun(batch, status="failed", error_code="refused")
    await client.batches.wait(batch, WAIT_SECONDS)
    assert sorted(sums.squared) == [1, 2]
    assert [run.number for run in batch.runs] == [1, 2]
    assert batch.runs[1].parent_run_id == first.id
    assert (batch.counts.succeeded, batch.counts.failed) == (1, 1)
    before = await client.batches.all("tasks", batch, run=first.id, status="succeeded")
    assert [task.result for task in before] == [0, 9]
    assert (batch.job_counts.total, batch.job_counts.succeeded) == (4, 3)
    latest = await client.batches.all("tasks", batch, run="all")
    assert [(task.job_index, task.result) for task in latest] == [(0, 0), (1, 1), (2, None), (3, 9)]
    with pytest.raises(ConflictError) as raised:
        await client.batches.rerun(batch, error_code="never_seen")
    assert raised.value.code == "nothing_to_rerun"


async def test_results_are_exported_to_a_file(
    client: Flavour, sums: Sums, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for files in (async_files, sync_files):
        monkeypatch.setattr(files, "PIECE_BYTES", 100)
    sums.refused = {3}
    batch = await client.batches.submit("sums", "/square", numbers(50))
    await client.batches.wait(batch, WAIT_SECONDS)
    path = await client.batches.export(batch, tmp_path / "results.zip", timeout=WAIT_SECONDS)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        lines = {
            name: archive.read(name).splitlines()
            for name in archive.namelist()
            if name.endswith("ndjson")
        }
    counted = {name.rpartition("/")[2].partition(".")[0]: len(each) for name, each in lines.items()}
    assert (counted["results"], counted["errors"]) == (49, 1)
    assert [each.name for each in tmp_path.glob("*results*")] == ["results.zip"]
    made = await client.batches.create_export(batch)

    async def written() -> Any:
        export = await client.batches.get_export(batch, made.id)
        return export if export.url else None

    export = await eventually_async(written, "the export is written")
    assert (export.status, export.tasks) == ("completed", 50)


async def test_a_batch_is_cancelled_and_deleted(
    client: Flavour, deployment: Deployment, connect: Connect
) -> None:
    waiting = Service("waiting")

    @waiting.post("/wait", concurrency=1)
    async def wait(job: Job) -> None:
        await job.wait_cancelled()
        job.check_cancelled()

    await deployment.start_worker(waiting)
    batch = await client.batches.submit("waiting", "/wait", [{}] * 5)
    await client.batches.cancel(batch)
    with pytest.raises(BatchFailed) as raised:
        await client.batches.wait(batch, WAIT_SECONDS)
    assert (raised.value.code, batch.counts.cancelled) == ("cancelled", 5)
    assert (await client.batches.cancel(batch)).status == "cancelled"
    await client.batches.delete(batch)
    with pytest.raises(NotFoundError):
        await client.batches.get(batch.id)
    with pytest.raises(NotFoundError):
        await client.batches.delete(batch.id)


async def test_a_list_without_a_task_is_a_dead_letter(
    client: Flavour, sums: Sums, tmp_path: Path
) -> None:
    path = tmp_path / "empty.ndjson"
    path.write_bytes(b"\n" * (BODY_BYTES_MAX + 1))
    batch = await client.batches.submit("sums", "/square", file=path)
    with pytest.raises(BatchFailed) as raised:
        await client.batches.wait(batch, WAIT_SECONDS)
    assert (batch.status, batch.error.code) == ("failed_ingest", raised.value.code)
    (letter,) = await client.batches.all("dead_letters")
    assert (letter.job_id, letter.error.code) == (batch.id, raised.value.code)
    await client.batches.redrive(letter)
    with pytest.raises(NotFoundError):
        await client.batches.redrive(STRANGER_ID)

    async def tried_again() -> bool:
        letters = await client.batches.all("dead_letters")
        return [letter.redrives for letter in letters] == [1]

    await eventually_async(tried_again, "the list is refused once more")


async def test_refusals_have_the_servers_code(
    connect: Connect, client: Flavour, sums: Sums, deployment: Deployment
) -> None:
    url = str(deployment.http.base_url)
    batch = await client.batches.submit("sums", "/square", numbers(1))
    stranger = connect(url, await deployment.create_key(user="another", scopes=[Scope.READ]))
    refusals: list[tuple[Any, type[Exception]]] = [
        (client.batches.submit("nothing", "/square", [1]), NotFoundError),
        (client.batches.submit("sums", "/nothing", [1]), NotFoundError),
        (client.batches.submit("sums", "/square", []), InvalidRequestError),
        (client.batches.submit("sums", "/square", [1], lane="fast"), InvalidRequestError),
        (client.batches.get("no-id"), NotFoundError),
        (stranger.batches.get(batch.id), NotFoundError),
        (stranger.batches.all("tasks", batch.id), NotFoundError),
        (stranger.batches.submit("sums", "/square", [1]), PermissionDeniedError),
    ]
    for refused, kind in refusals:
        with pytest.raises(kind) as raised:
            await refused
        assert raised.value.code
        assert raised.value.request_id


async def test_a_manifest_of_an_export_counts_what_is_in_it(
    client: Flavour, sums: Sums, tmp_path: Path
) -> None:
    batch = await client.batches.submit("sums", "/square", numbers(5))
    await client.batches.wait(batch, WAIT_SECONDS)
    path = await client.batches.export(batch.id, tmp_path / "e.zip", run=batch.runs[0].id)
    with zipfile.ZipFile(path) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("manifest.json")]
        assert json.loads(archive.read(name))["counts"]["succeeded"] == 5
