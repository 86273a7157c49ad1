"""Exports: a zip of what has ended of a run, whole or not there, for a day."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from coatcheck import Engine, Settings
from coatcheck.blobs import BlobContainer
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.database import Database
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.ids import to_text
from coatcheck.domain.states import State
from coatcheck.domain.webhooks import INTERNAL
from coatcheck.products.batches import exporter
from coatcheck.products.batches.executor import BatchExecutor
from coatcheck.products.batches.maintenance import BatchSweeper, ExportExpirer
from coatcheck.products.batches.model import EXPORT_ENDPOINT, ExportView
from coatcheck.products.batches.queries import sql
from coatcheck.products.batches.repository import BatchRepository
from coatcheck.worker.worker import Worker
from tests.blobs.stores import BlobStore
from tests.db.edge_guard import AsyncpgConnection
from tests.db.long_runs import LongRun, put_long_run
from tests.db.plans import explain_query
from tests.db.rows import ORG, connected
from tests.deployment import Deployment
from tests.markdown import REPOSITORY
from tests.waiting import eventually_async

MIXED = [State.COMPLETED, State.FAILED, State.COMPLETED, State.CANCELLED]


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[AsyncpgConnection]:
    async with connected(dsn) as opened:
        yield opened


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    opened = Connection(dsn, name="test", server_settings=PINNED_PLANS)
    yield opened
    await opened.close()


@pytest.fixture
def folder_settings(dsn: str, tmp_path: Any) -> Settings:
    return Settings(
        database_url=dsn,
        blob_url=(tmp_path / "blobs").as_uri(),
        temp_dir=tmp_path / "temp",
        drain_seconds=0.0,
    )


@pytest.fixture
async def engine(folder_settings: Settings) -> AsyncIterator[Engine]:
    async with Engine(folder_settings) as opened:
        yield opened


@asynccontextmanager
async def working(settings: Settings) -> AsyncIterator[Worker]:
    """A worker that writes exports, as long as the context is open."""
    async with (
        Deployment(settings.database_url, settings.temp_dir, servers=0) as deployment,
        Database.of_worker(settings.database_url) as database,
        BatchExecutor(settings, database) as executor,
    ):
        yield await deployment.run_worker(executor.worker())


async def ask(engine: Engine, made: LongRun) -> ExportView:
    view = await engine.extension(BatchRepository).get(to_text(made.batch), org=made.org)
    return await engine.extension(BatchRepository).exports.create(
        view, view.current, request_id="r-1"
    )


async def look(engine: Engine, made: LongRun, export: ExportView) -> ExportView:
    view = await engine.extension(BatchRepository).get(to_text(made.batch), org=made.org)
    return await engine.extension(BatchRepository).exports.get(view, to_text(export.uuid))


async def written(engine: Engine, made: LongRun, export: ExportView) -> ExportView:
    """The export once it is there."""

    async def ended() -> ExportView | None:
        found = await look(engine, made, export)
        assert found.state != "failed", found
        return found if found.state == "completed" else None

    found: ExportView = await eventually_async(ended, "the export is written")
    return found


async def opened(blobs: BlobContainer, export: ExportView) -> zipfile.ZipFile:
    """The zip of an export, checked against what is said of it."""
    assert export.blob_key is not None
    content = await blobs.get(export.blob_key)
    assert len(content) == export.size
    assert hashlib.sha256(content).digest() == export.sha256
    archive = zipfile.ZipFile(io.BytesIO(content))
    assert archive.testzip() is None
    return archive


def lines_of(archive: zipfile.ZipFile, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in archive.read(name).splitlines()]


def manifest_of(archive: zipfile.ZipFile) -> dict[str, Any]:
    """The manifest, whose files are checked against it."""
    manifest: dict[str, Any] = json.loads(archive.read(exporter.MANIFEST))
    for file in manifest["files"]:
        content = archive.read(file["name"])
        assert hashlib.sha256(content).hexdigest() == file["sha256"]
        assert (len(content), content.count(b"\n")) == (file["bytes"], file["lines"])
    assert [file["name"] for file in manifest["files"]] == [
        exporter.RESULTS,
        exporter.ERRORS,
        exporter.BAD_LINES,
    ]
    return manifest


async def put_bad_line(connection: AsyncpgConnection, made: LongRun) -> None:
    await connection.execute(
        "WITH counted AS (UPDATE batch_parts SET bad_lines = 1 WHERE org_id = $1 AND id = $2)"
        " INSERT INTO batch_bad_lines VALUES ($1, $2, 7, 'not_json', 'it is no JSON')",
        ORG,
        made.part,
    )


async def test_an_export_holds_every_task_and_its_manifest_tells_the_truth(
    dsn: str,
    blob_store: BlobStore,
    container: BlobContainer,
    tmp_path: Any,
    connection: AsyncpgConnection,
) -> None:
    settings = Settings(
        database_url=dsn, blob_url=blob_store.url, temp_dir=tmp_path, drain_seconds=0.0
    )
    made = await put_long_run(connection, MIXED * 1_500)
    await put_bad_line(connection, made)
    await connection.execute(
        "INSERT INTO artifacts VALUES ($1, $2, 'page.html', 'a/key', 'text/html', 12, '\\xab01')",
        ORG,
        made.task(0),
    )
    async with Engine(settings) as engine, working(settings):
        export = await written(engine, made, await ask(engine, made))
        assert export.tasks_written == 6_000
        assert export.expires_at is not None
        assert export.completed_at is not None
        assert (export.expires_at - export.completed_at).total_seconds() == 86_400
        archive = await opened(container, export)

    results, errors = lines_of(archive, exporter.RESULTS), lines_of(archive, exporter.ERRORS)
    assert [task["index"] for task in results] == list(range(0, 6_000, 2))
    assert sorted(task["index"] for task in errors) == list(range(1, 6_000, 2))
    first, second = results[0], results[1]
    assert first.pop("finished_at").endswith("Z")
    assert first == {
        "id": made.task(0).hex,
        "run_id": to_text(made.run),
        "index": 0,
        "job_index": 0,
        "custom_id": "task 0",
        "status": "succeeded",
        "result": {"ok": True},
        "attempts": 1,
        "artifacts": [
            {"name": "page.html", "media_type": "text/html", "bytes": 12, "sha256": "ab01"}
        ],
    }
    assert "artifacts" not in second
    failed, cancelled = errors[0], errors[-1]
    failed.pop("finished_at")
    assert failed == {
        "id": made.task(1).hex,
        "run_id": to_text(made.run),
        "index": 1,
        "job_index": 1,
        "custom_id": "task 1",
        "status": "failed",
        "error": {"code": "broke", "message": "it broke"},
        "attempts": 4,
    }
    assert (cancelled["status"], cancelled["error"]["code"]) == ("cancelled", "cancelled")
    assert lines_of(archive, exporter.BAD_LINES) == [
        {
            "run_id": to_text(made.run),
            "part": 1,
            "line": 7,
            "error": {"code": "not_json", "message": "it is no JSON"},
        }
    ]
    manifest = manifest_of(archive)
    assert manifest["complete"] is True
    assert manifest["format"] == exporter.FORMAT
    assert (manifest["batch_id"], manifest["run_id"]) == (to_text(made.batch), to_text(made.run))
    assert manifest["counts"] == {
        "total": 6_000,
        "succeeded": 3_000,
        "failed": 1_500,
        "cancelled": 1_500,
    }


async def test_an_export_of_a_run_that_goes_on_holds_what_has_ended_and_says_so(
    folder_settings: Settings, engine: Engine, connection: AsyncpgConnection
) -> None:
    made = await put_long_run(connection, [*MIXED, State.QUEUED, State.PROCESSING])
    async with working(folder_settings):
        export = await written(engine, made, await ask(engine, made))
    archive = await opened(engine.blobs, export)
    manifest = manifest_of(archive)
    assert manifest["complete"] is False
    assert manifest["run_completed_at"] is None
    assert manifest["counts"] == {"total": 6, "succeeded": 2, "failed": 1, "cancelled": 1}
    assert len(lines_of(archive, exporter.RESULTS)) == 2


@pytest.mark.parametrize(
    ("endpoint", "result", "shown"),
    [
        ("demo.post__work", b'{\n  "a": "x\\ny",\r\n  "b": [1,\n2]\n}', {"a": "x\ny", "b": [1, 2]}),
        ("demo.post__work", b"null", None),
        ("demo.post__work", b"12345678901234567890", 12345678901234567890),
        (UPSTREAM_ENDPOINT, b'{"status":200,"body_json":{"a":1}}', {"a": 1}),
    ],
)
async def test_a_result_is_on_one_line_and_as_its_reader_is_shown_it(
    folder_settings: Settings,
    engine: Engine,
    connection: AsyncpgConnection,
    endpoint: str,
    result: bytes,
    shown: Any,
) -> None:
    made = await put_long_run(connection, [State.COMPLETED], endpoint=endpoint, result=result)
    await connection.execute("UPDATE jobs SET custom_id = $1", 'quoted "é"\n')
    async with working(folder_settings):
        export = await written(engine, made, await ask(engine, made))
    archive = await opened(engine.blobs, export)
    manifest_of(archive)
    (line,) = lines_of(archive, exporter.RESULTS)
    assert line["result"] == shown
    assert line["custom_id"] == 'quoted "é"\n'


async def test_large_results_are_read_a_few_at_a_time(
    connection: AsyncpgConnection, line: Connection
) -> None:
    made = await put_long_run(connection, [State.COMPLETED] * 40, result=b"1" * 100_000)
    seen: list[int] = []
    chunks = 0
    while rows := await sql.fetch(
        line,
        "exports/ended",
        org=ORG,
        run=made.run,
        state="completed",
        after=seen[-1] if seen else -1,
        limit=1_000,
        bytes_max=250_000,
    ):
        seen += [row["task_index"] for row in rows]
        chunks += 1
        assert sum(len(row["result"]) for row in rows) <= 250_000 + 100_000
    assert seen == list(range(40))
    assert chunks == 14


async def test_an_export_is_seen_by_nobody_else_and_not_after_its_time(
    engine: Engine, connection: AsyncpgConnection, line: Connection
) -> None:
    made, sibling = await put_long_run(connection, MIXED), await put_long_run(connection, MIXED)
    export = await ask(engine, made)
    assert (export.state, export.run) == ("pending", made.run)
    assert export == await look(engine, made, export)
    assert await engine.extension(BatchRepository).exports.list(await made.view(line)) == [export]
    assert await engine.extension(BatchRepository).exports.list(await sibling.view(line)) == []
    for absent in (to_text(export.uuid)[:-1], "x", to_text(made.batch)):
        with pytest.raises(JobNotFound):
            await engine.extension(BatchRepository).exports.get(await made.view(line), absent)
    with pytest.raises(JobNotFound):
        await look(engine, sibling, export)
    await connection.execute("UPDATE batch_exports SET expires_at = now()")
    with pytest.raises(JobNotFound):
        await look(engine, made, export)
    assert await engine.extension(BatchRepository).exports.list(await made.view(line)) == []


async def test_an_export_and_its_job_come_into_being_together_or_not_at_all(
    engine: Engine, connection: AsyncpgConnection, line: Connection
) -> None:
    made = await put_long_run(connection, MIXED)
    view = await made.view(line)
    export = await ask(engine, made)
    job = await connection.fetchrow("SELECT * FROM jobs WHERE endpoint = $1", EXPORT_ENDPOINT)
    assert job is not None
    assert json.loads(job["payload"]) == {"export": to_text(export.uuid)}
    assert (job["request_id"], job["state"], job["webhook"]) == ("r-1", "queued", INTERNAL)
    await engine.extension(BatchRepository).delete(to_text(made.batch), org=ORG)
    with pytest.raises(JobNotFound):
        await engine.extension(BatchRepository).exports.create(view, view.current, request_id=None)
    assert await connection.fetchval("SELECT count(*) FROM batch_exports") == 1


async def test_an_expired_export_goes_with_its_blob(
    dsn: str,
    blob_store: BlobStore,
    container: BlobContainer,
    tmp_path: Any,
    connection: AsyncpgConnection,
    line: Connection,
) -> None:
    settings = Settings(
        database_url=dsn, blob_url=blob_store.url, temp_dir=tmp_path, drain_seconds=0.0
    )
    made = await put_long_run(connection, MIXED)
    async with Engine(settings) as engine, working(settings):
        old = await written(engine, made, await ask(engine, made))
        young = await written(engine, made, await ask(engine, made))
    await connection.execute("UPDATE batch_exports SET expires_at = now() WHERE id = $1", old.uuid)
    await ExportExpirer(line, container, keep_seconds=60).tick()
    assert [page async for page in container.keys_under("exports")] == [[young.blob_key]]
    assert [row["id"] for row in await connection.fetch("SELECT id FROM batch_exports")] == [
        young.uuid
    ]


@pytest.mark.parametrize("job_is_gone", [False, True])
async def test_an_export_that_nobody_will_write_fails(
    engine: Engine, connection: AsyncpgConnection, line: Connection, job_is_gone: bool
) -> None:
    made = await put_long_run(connection, MIXED)
    lost, waiting = await ask(engine, made), await ask(engine, made)
    job = await connection.fetchval("SELECT export_job FROM batch_exports WHERE id = $1", lost.uuid)
    if job_is_gone:
        await connection.execute("DELETE FROM jobs WHERE id = $1", job)
    else:
        await engine.cancel(to_text(job), org=ORG)
    await ExportExpirer(line, engine.blobs, keep_seconds=60).tick()
    found = await look(engine, made, lost)
    assert (found.state, found.error_code) == (
        "failed",
        "export_lost" if job_is_gone else "cancelled",
    )
    assert found.error_message
    assert found.expires_at is not None
    assert (await look(engine, made, waiting)).state == "pending"


async def test_an_export_that_is_no_longer_wanted_leaves_no_blob(
    folder_settings: Settings,
    engine: Engine,
    connection: AsyncpgConnection,
    line: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = await put_long_run(connection, MIXED)
    stored: list[str] = []
    put = BlobContainer.put

    async def put_and_delete_the_batch(
        self: BlobContainer, key: str, *given: Any, **named: Any
    ) -> Any:
        answer = await put(self, key, *given, **named)
        await engine.extension(BatchRepository).delete(to_text(made.batch), org=ORG)
        stored.append(key)
        return answer

    monkeypatch.setattr(BlobContainer, "put", put_and_delete_the_batch)
    await ask(engine, made)
    async with working(folder_settings):
        await eventually_async(
            lambda: connection.fetchval(
                "SELECT state = 'completed' FROM jobs WHERE endpoint = $1", EXPORT_ENDPOINT
            ),
            "its job has ended",
        )
    assert len(stored) == 1
    assert [page async for page in engine.blobs.keys_under("exports")] == []
    assert await connection.fetchval("SELECT state FROM batch_exports") == "pending"


async def test_an_export_whose_worker_drains_is_written_by_the_next(
    folder_settings: Settings,
    engine: Engine,
    connection: AsyncpgConnection,
    line: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = await put_long_run(connection, [State.COMPLETED] * 5_000)
    asked = await ask(engine, made)
    async with Deployment(
        folder_settings.database_url, folder_settings.temp_dir, servers=0
    ) as deployment:
        async with (
            Database.of_worker(folder_settings.database_url) as database,
            BatchExecutor(folder_settings, database) as executor,
        ):
            first = executor.worker()
            passed: list[str] = []

            def stop_the_worker(name: str) -> None:
                passed.append(name)
                first.stop()

            monkeypatch.setattr(exporter, "crash_point", stop_the_worker)
            await deployment.run_worker(first)
            await deployment.worker_ended(first)
        assert "export.mid_file" in passed
        assert "export.uploaded_not_marked" not in passed
        assert (await look(engine, made, asked)).state == "pending"
    monkeypatch.undo()
    async with working(folder_settings):
        export = await written(engine, made, asked)
    manifest = manifest_of(await opened(engine.blobs, export))
    assert manifest["counts"]["succeeded"] == 5_000
    await BatchSweeper(line, engine.blobs, grace=timedelta(0)).tick()
    assert [page async for page in engine.blobs.keys_under("exports")] == [[export.blob_key]]
    job = await connection.fetchrow("SELECT * FROM jobs WHERE endpoint = $1", EXPORT_ENDPOINT)
    assert job is not None
    assert (job["failures"], job["crashes"], job["interruptions"]) == (0, 0, 1)


async def test_a_chunk_reads_its_own_tasks_only(
    connection: AsyncpgConnection, line: Connection
) -> None:
    await put_long_run(connection, MIXED * 1_000)
    made = await put_long_run(connection, MIXED * 1_000)
    await connection.execute("VACUUM ANALYZE jobs")
    plan = await line.run(
        lambda it: explain_query(
            it,
            sql,
            "exports/ended",
            org=ORG,
            run=made.run,
            state="completed",
            after=1_000,
            limit=50,
            bytes_max=1_000_000,
        )
    )
    assert plan.indexes("jobs") == {"jobs_pkey"}
    assert plan.rows_read("jobs") == 50
    assert plan.indexes("ended_tasks") == {"ended_tasks_pkey"}
    # A seventh of the tasks of each block has completed: a row has nine of them.
    assert plan.rows_read("ended_tasks") <= (50 + 2 * 64) / 9 + 1


def documented(heading: str) -> set[str]:
    """The fields that the reference names under a heading."""
    page = (REPOSITORY / "docs/reference/batch-exports.md").read_text()
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


async def test_the_reference_names_every_field_and_no_other(
    folder_settings: Settings, engine: Engine, connection: AsyncpgConnection
) -> None:
    made = await put_long_run(connection, MIXED)
    await put_bad_line(connection, made)
    await connection.execute(
        "INSERT INTO artifacts VALUES ($1, $2, 'page.html', 'a/key', 'text/html', 12, '')",
        ORG,
        made.task(0),
    )
    async with working(folder_settings):
        export = await written(engine, made, await ask(engine, made))
    archive = await opened(engine.blobs, export)
    result, error = lines_of(archive, exporter.RESULTS)[0], lines_of(archive, exporter.ERRORS)[0]
    (bad_line,) = lines_of(archive, exporter.BAD_LINES)
    assert documented("A line of `results.ndjson`") == result.keys()
    assert documented("A line of `errors.ndjson`") == error.keys() - result.keys()
    assert documented("A line of `bad_lines.ndjson`") == bad_line.keys()
    assert documented("`manifest.json`") == manifest_of(archive).keys()
    shown = (REPOSITORY / "docs/reference/batch-exports.md").read_text()
    assert {f"`{name}`" for name in archive.namelist()} <= set(re.findall(r"`[\w.]+`", shown))
