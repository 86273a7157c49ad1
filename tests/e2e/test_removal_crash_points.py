"""Kills a worker, upkeep and PostgreSQL while exports are written and batches removed: an export is
whole or not there, and of a removed batch nothing is left."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import artifact_key
from coatcheck.db.connection import Connection
from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.db.migrate import migrate
from coatcheck.domain.ids import new_id, to_text
from coatcheck.domain.states import State
from coatcheck.maintenance.retention import OrphanBlobSweeper
from coatcheck.products.batches import exporter, maintenance
from coatcheck.products.batches.executor import BatchExecutor
from coatcheck.products.batches.maintenance import BatchSweeper
from coatcheck.products.batches.model import ExportView
from coatcheck.products.batches.repository import BatchRepository
from tests.db.long_runs import LongRun, put_long_run, rows_left
from tests.e2e.faults.laboratory import Laboratory
from tests.e2e.faults.victims import VICTIM
from tests.waiting import eventually_async

EXPORT_POINTS = {"export.mid_file": 2, "export.uploaded_not_marked": 1}
"""Each point of an export, and at which passing of it to die."""
REMOVAL_POINTS = {"batch.remove_chunk_deleted"}
SUCCEEDED, FAILED = 5_000, 1_000
STATES = [State.COMPLETED] * SUCCEEDED + [State.FAILED] * FAILED


@pytest.fixture
async def laboratory(dsn: str, tmp_path: Path) -> AsyncIterator[Laboratory]:
    async with Laboratory(dsn, tmp_path) as opened:
        yield opened


@pytest.fixture
async def laboratory_on_own_server(
    pg_server: EmbeddedPostgres, tmp_path: Path
) -> AsyncIterator[Laboratory]:
    await migrate(pg_server.dsn)
    async with Laboratory(pg_server.dsn, tmp_path) as opened:
        yield opened


async def ask(laboratory: Laboratory, made: LongRun) -> ExportView:
    view = await laboratory.engine.extension(BatchRepository).get(to_text(made.batch), org=made.org)
    return await laboratory.engine.extension(BatchRepository).exports.create(
        view, view.current, request_id=None
    )


async def look(laboratory: Laboratory, made: LongRun, export: ExportView) -> ExportView:
    view = await laboratory.engine.extension(BatchRepository).get(to_text(made.batch), org=made.org)
    return await laboratory.engine.extension(BatchRepository).exports.get(
        view, to_text(export.uuid)
    )


async def is_written_whole(laboratory: Laboratory, made: LongRun, export: ExportView) -> None:
    """Write it here, if need be, and look into it; one blob is all there is in the end."""
    laboratory.start_upkeep()
    async with BatchExecutor(laboratory.settings()) as executor:
        worker = await laboratory.run_worker(executor.worker())

        async def written() -> ExportView | None:
            found = await look(laboratory, made, export)
            assert found.state != "failed", found
            return found if found.state == "completed" else None

        found: ExportView = await eventually_async(written, "the export is written")
        await laboratory.drain(worker)
    check(await laboratory.engine.blobs.get(str(found.blob_key)), found)
    assert await blobs_after_a_sweep(laboratory) == [found.blob_key]


def check(content: bytes, export: ExportView) -> None:
    assert hashlib.sha256(content).digest() == export.sha256
    archive = zipfile.ZipFile(io.BytesIO(content))
    assert archive.testzip() is None
    manifest = json.loads(archive.read(exporter.MANIFEST))
    results = [json.loads(line) for line in archive.read(exporter.RESULTS).splitlines()]
    errors = [json.loads(line) for line in archive.read(exporter.ERRORS).splitlines()]
    assert [task["index"] for task in results] == list(range(SUCCEEDED))
    assert [task["index"] for task in errors] == list(range(SUCCEEDED, SUCCEEDED + FAILED))
    assert manifest["complete"] is True
    assert [file["lines"] for file in manifest["files"]] == [SUCCEEDED, FAILED, 0]


async def blobs_after_a_sweep(laboratory: Laboratory) -> list[str]:
    """What is in the container once orphans, however young, are swept."""
    line = Connection(laboratory.dsn, name="sweep")
    blobs = BlobContainer.open(laboratory.settings().blob_url)
    await OrphanBlobSweeper(line, blobs, grace=timedelta(0)).tick()
    await BatchSweeper(line, blobs, grace=timedelta(0)).tick()
    await line.close()
    return files(laboratory)


def files(laboratory: Laboratory) -> list[str]:
    folder = laboratory.folder / "blobs"
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


@pytest.mark.crash
@pytest.mark.parametrize("point", sorted(EXPORT_POINTS))
async def test_an_export_whose_writer_is_killed_is_written_by_another(
    laboratory: Laboratory, point: str
) -> None:
    made = await put_long_run(laboratory.sql, STATES)
    export = await ask(laboratory, made)
    process = laboratory.start("batch_worker", crash_at=f"{point}:{EXPORT_POINTS[point]}")
    await laboratory.strike(process)
    if VICTIM.is_exact:
        left = await look(laboratory, made, export)
        assert (left.state, left.blob_key) == ("pending", None), "what is not whole is not shown"
        if point == "export.uploaded_not_marked":
            assert len(files(laboratory)) == 1, "it died after the upload"
    await laboratory.forget_the_struck()
    await is_written_whole(laboratory, made, export)


def killing(pg_server: EmbeddedPostgres, at: str) -> Callable[[str], None]:
    """A crash point at which PostgreSQL dies and comes back, once."""
    left = [at]

    def crash_point(name: str) -> None:
        if name in left:
            left.remove(name)
            pg_server.kill()
            pg_server.start()

    return crash_point


@pytest.mark.crash
@pytest.mark.parametrize("point", sorted(EXPORT_POINTS))
async def test_an_export_outlives_a_death_of_postgresql(
    laboratory_on_own_server: Laboratory,
    pg_server: EmbeddedPostgres,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    laboratory = laboratory_on_own_server
    made = await put_long_run(laboratory.sql, STATES)
    export = await ask(laboratory, made)
    monkeypatch.setattr(exporter, "crash_point", killing(pg_server, point))
    await is_written_whole(laboratory, made, export)
    await laboratory.reconnect()


async def put_with_artifacts(laboratory: Laboratory) -> LongRun:
    """A batch some of whose tasks have artifacts, in the first chunk that goes and in the last."""
    made = await put_long_run(laboratory.sql, STATES)
    deployment = await laboratory.engine.deployment()
    for index in (0, 1, 4_000, 5_998, 5_999):
        key = artifact_key(deployment, made.task(index))
        await laboratory.engine.blobs.put(key, b"an artifact")
        await laboratory.sql.execute(
            "INSERT INTO artifacts VALUES ($1, $2, 'file', $3, 'text/plain', 11, '')",
            made.org,
            made.task(index),
            key,
        )
    other = artifact_key(deployment, new_id())
    await laboratory.engine.blobs.put(other, b"of another job")
    await laboratory.engine.extension(BatchRepository).delete(to_text(made.batch), org=made.org)
    return made


async def is_removed(laboratory: Laboratory, made: LongRun) -> None:
    """Wait until nothing of the batch is left; no sweep is needed."""

    async def gone() -> bool:
        return await rows_left(laboratory.sql, made) == {}

    await eventually_async(gone, "nothing is left in any table")
    assert len(files(laboratory)) == 1, "what is not of this batch"


@pytest.mark.crash
@pytest.mark.parametrize("nth", [1, 2])
async def test_a_removal_whose_upkeep_is_killed_is_gone_on_with(
    laboratory: Laboratory, nth: int
) -> None:
    made = await put_with_artifacts(laboratory)
    (point,) = REMOVAL_POINTS
    process = laboratory.start("upkeep", crash_at=f"{point}:{nth}")
    await laboratory.strike(process)
    if VICTIM.is_exact:
        left = await rows_left(laboratory.sql, made)
        assert left["jobs"] == len(STATES) - 1_000 * (nth - 1)
        assert left["artifacts"] == 5 - 2 * (nth - 1), "blobs go before the rows that know them"
        assert len(files(laboratory)) == (4 if nth == 1 else 3)
    laboratory.start_upkeep()
    await is_removed(laboratory, made)


@pytest.mark.crash
async def test_a_removal_outlives_a_death_of_postgresql(
    laboratory_on_own_server: Laboratory,
    pg_server: EmbeddedPostgres,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    laboratory = laboratory_on_own_server
    made = await put_with_artifacts(laboratory)
    (point,) = REMOVAL_POINTS
    died: list[str] = []
    kill = killing(pg_server, point)

    def crash_point(name: str) -> None:
        kill(name)
        died.append(name)

    monkeypatch.setattr(maintenance, "crash_point", crash_point)
    laboratory.start_upkeep()

    async def has_died() -> bool:
        return bool(died)

    await eventually_async(has_died, "PostgreSQL was killed")
    await laboratory.reconnect()
    await is_removed(laboratory, made)
