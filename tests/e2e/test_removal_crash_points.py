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
from tests.crash_points import VICTIM
from tests.db.long_runs import LongRun, put_long_run, rows_left
from tests.deployment import Deployment
from tests.e2e.faults.roles import end_leases_of_the_struck, start_role
from tests.waiting import eventually_async

EXPORT_POINTS = {"export.mid_file": 2, "export.uploaded_not_marked": 1}
"""Each point of an export, and at which passing of it to die."""
REMOVAL_POINTS = {"batch.remove_chunk_deleted"}
SUCCEEDED, FAILED = 5_000, 1_000
STATES = [State.COMPLETED] * SUCCEEDED + [State.FAILED] * FAILED


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with Deployment(dsn, tmp_path, servers=0) as opened:
        yield opened


@pytest.fixture
async def deployment_on_own_server(
    pg_server: EmbeddedPostgres, tmp_path: Path
) -> AsyncIterator[Deployment]:
    await migrate(pg_server.dsn)
    async with Deployment(pg_server.dsn, tmp_path, servers=0) as opened:
        yield opened


async def ask(deployment: Deployment, made: LongRun) -> ExportView:
    view = await deployment.engine.extension(BatchRepository).get(to_text(made.batch), org=made.org)
    return await deployment.engine.extension(BatchRepository).exports.create(
        view, view.current, request_id=None
    )


async def look(deployment: Deployment, made: LongRun, export: ExportView) -> ExportView:
    view = await deployment.engine.extension(BatchRepository).get(to_text(made.batch), org=made.org)
    return await deployment.engine.extension(BatchRepository).exports.get(
        view, to_text(export.uuid)
    )


async def is_written_whole(deployment: Deployment, made: LongRun, export: ExportView) -> None:
    """Write it here, if need be, and look into it; one blob is all there is in the end."""
    deployment.start_maintenance()
    async with BatchExecutor(deployment.settings, deployment.database) as executor:
        worker = await deployment.run_worker(executor.worker())

        async def written() -> ExportView | None:
            found = await look(deployment, made, export)
            assert found.state != "failed", found
            return found if found.state == "completed" else None

        found: ExportView = await eventually_async(written, "the export is written")
        await deployment.stop_worker(worker)
    check(await deployment.engine.blobs.get(str(found.blob_key)), found)
    assert await blobs_after_a_sweep(deployment) == [found.blob_key]


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


async def blobs_after_a_sweep(deployment: Deployment) -> list[str]:
    """What is in the container once orphans, however young, are swept."""
    line = Connection(deployment.dsn, name="sweep")
    blobs = BlobContainer.open(deployment.settings.blob_url)
    await OrphanBlobSweeper(line, blobs, grace=timedelta(0)).tick()
    await BatchSweeper(line, blobs, grace=timedelta(0)).tick()
    await line.close()
    return files(deployment)


def files(deployment: Deployment) -> list[str]:
    folder = deployment.folder / "blobs"
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


@pytest.mark.crash
@pytest.mark.parametrize("point", sorted(EXPORT_POINTS))
async def test_an_export_whose_writer_is_killed_is_written_by_another(
    deployment: Deployment, point: str
) -> None:
    made = await put_long_run(deployment.sql, STATES)
    export = await ask(deployment, made)
    process = start_role(deployment, "batch_worker", crash_at=f"{point}:{EXPORT_POINTS[point]}")
    await deployment.strike(process)
    if VICTIM.is_exact:
        left = await look(deployment, made, export)
        assert (left.state, left.blob_key) == ("pending", None), "what is not whole is not shown"
        if point == "export.uploaded_not_marked":
            assert len(files(deployment)) == 1, "it died after the upload"
    await end_leases_of_the_struck(deployment)
    await is_written_whole(deployment, made, export)


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
    deployment_on_own_server: Deployment,
    pg_server: EmbeddedPostgres,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    deployment = deployment_on_own_server
    made = await put_long_run(deployment.sql, STATES)
    export = await ask(deployment, made)
    monkeypatch.setattr(exporter, "crash_point", killing(pg_server, point))
    await is_written_whole(deployment, made, export)
    await deployment.reconnect()


async def put_with_artifacts(deployment: Deployment) -> LongRun:
    """A batch some of whose tasks have artifacts, in the first chunk that goes and in the last."""
    made = await put_long_run(deployment.sql, STATES)
    database = await deployment.engine.deployment()
    for index in (0, 1, 4_000, 5_998, 5_999):
        key = artifact_key(database, made.task(index))
        await deployment.engine.blobs.put(key, b"an artifact")
        await deployment.sql.execute(
            "INSERT INTO artifacts VALUES ($1, $2, 'file', $3, 'text/plain', 11, '')",
            made.org,
            made.task(index),
            key,
        )
    other = artifact_key(database, new_id())
    await deployment.engine.blobs.put(other, b"of another job")
    await deployment.engine.extension(BatchRepository).delete(to_text(made.batch), org=made.org)
    return made


async def is_removed(deployment: Deployment, made: LongRun) -> None:
    """Wait until nothing of the batch is left; no sweep is needed."""

    async def gone() -> bool:
        return await rows_left(deployment.sql, made) == {}

    await eventually_async(gone, "nothing is left in any table")
    assert len(files(deployment)) == 1, "what is not of this batch"


@pytest.mark.crash
@pytest.mark.parametrize("nth", [1, 2])
async def test_a_removal_whose_upkeep_is_killed_is_gone_on_with(
    deployment: Deployment, nth: int
) -> None:
    made = await put_with_artifacts(deployment)
    (point,) = REMOVAL_POINTS
    process = start_role(deployment, "upkeep", crash_at=f"{point}:{nth}")
    await deployment.strike(process)
    if VICTIM.is_exact:
        left = await rows_left(deployment.sql, made)
        assert left["jobs"] == len(STATES) - 1_000 * (nth - 1)
        assert left["artifacts"] == 5 - 2 * (nth - 1), "blobs go before the rows that know them"
        assert len(files(deployment)) == (4 if nth == 1 else 3)
    deployment.start_maintenance()
    await is_removed(deployment, made)


@pytest.mark.crash
async def test_a_removal_outlives_a_death_of_postgresql(
    deployment_on_own_server: Deployment,
    pg_server: EmbeddedPostgres,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployment = deployment_on_own_server
    made = await put_with_artifacts(deployment)
    (point,) = REMOVAL_POINTS
    died: list[str] = []
    kill = killing(pg_server, point)

    def crash_point(name: str) -> None:
        kill(name)
        died.append(name)

    monkeypatch.setattr(maintenance, "crash_point", crash_point)
    deployment.start_maintenance()

    async def has_died() -> bool:
        return bool(died)

    await eventually_async(has_died, "PostgreSQL was killed")
    await deployment.reconnect()
    await is_removed(deployment, made)
