"""Analyses and uploads that are cut short: nothing is lost, and nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from coatcheck.core.queries import inputs
from coatcheck.db.connection import Connection
from coatcheck.domain.ids import from_text
from coatcheck.domain.inputs import InputRecord, Layer
from coatcheck.domain.job import ClaimedJob
from coatcheck.products.graphs import executor
from coatcheck.worker.temp_dirs import TempRoot
from tests.deployment import Deployment, lane_seconds
from tests.products.graphs.archives import MIB, PROGRAM, post, zipped
from tests.products.graphs.gated import post_through
from tests.products.graphs.stored import complete_receipt, inputs_in, mechanisms, receipt_of
from tests.waiting import eventually_async

ARCHIVE = zipped(PROGRAM)


class Held:
    """Holds every download of an archive after its first piece, until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        stream = executor.stream_pieces

        async def held(*arguments: Any) -> Any:
            async for piece in stream(*arguments):
                yield piece
                self.reached.set()
                await self.go.wait()

        monkeypatch.setattr(executor, "stream_pieces", held)


async def record_of(dsn: str, body: Mapping[str, Any]) -> InputRecord:
    """What the database says, when nobody is left to ask."""
    line = Connection(dsn, name="test")
    try:
        record = await inputs.record(line, "default", from_text(body["jobId"]))
    finally:
        await line.close()
    assert record is not None
    return record


def archives_on_disk(folder: Path) -> list[Path]:
    return list((folder / "temp").rglob(executor.ARCHIVE))


async def test_a_worker_that_is_stopped_gives_its_archive_back_and_spends_no_attempt(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    worker = await deployment.start_graphs_worker()
    body = (await post(deployment.http, ARCHIVE, "k")).json()
    await held.reached.wait()
    assert len(archives_on_disk(tmp_path)) == 1
    await deployment.stop_worker(worker)

    view = await deployment.engine.get(body["jobId"])
    assert (view.state.value, view.attempts) == ("queued", 0)
    assert archives_on_disk(tmp_path) == []
    (disk,) = [
        each for each in (await receipt_of(deployment, body))["layers"] if each["layer"] == "disk"
    ]
    assert (disk["mechanism"], bool(disk["deletedAt"])) == ("worker", True)

    held.go.set()
    await deployment.start_graphs_worker()
    ended = (await deployment.http.get(body["urls"]["poll"] + "?wait=60")).json()
    assert ended["status"] == "completed"
    assert {layer["layer"] for layer in (await complete_receipt(deployment, body))["layers"]} == {
        "blob",
        "disk",
        "database",
    }


async def test_a_worker_that_is_stopped_while_parsers_run_ends_them_and_gives_the_job_back(
    deployment: Deployment, tmp_path: Path
) -> None:
    worker = await deployment.start_graphs_worker()
    long = "\n".join(f"def f{number}(): return g{number}()" for number in range(20_000))
    archive = zipped({f"m{number}.py": long for number in range(40)})
    body = (await post(deployment.http, archive, "k")).json()

    async def parsing() -> bool:
        return "progress" in (await deployment.http.get(body["urls"]["poll"])).json()

    await eventually_async(parsing, "files are being parsed")
    processes = psutil.Process().children(recursive=True)
    assert any("executors.child" in " ".join(each.cmdline()) for each in processes)
    await deployment.stop_worker(worker)

    view = await deployment.engine.get(body["jobId"])
    assert (view.state.value, view.attempts) == ("queued", 0)
    assert archives_on_disk(tmp_path) == []
    left = psutil.Process().children(recursive=True)
    assert not any("executors.child" in " ".join(each.cmdline()) for each in left)
    assert mechanisms(await receipt_of(deployment, body))["disk"] == "worker"


async def test_an_analysis_that_takes_too_long_fails_at_once_and_for_good(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "RUN_SECONDS_MAX", 0.3)
    Held(monkeypatch)
    await deployment.start_graphs_worker()
    body = (await post(deployment.http, ARCHIVE, "k")).json()
    ended = (await deployment.http.get(f"{body['urls']['poll']}?wait=60")).json()
    assert (ended["status"], ended["errorCode"]) == ("failed", "analysis_too_long")
    assert archives_on_disk(tmp_path) == []


async def test_a_worker_that_loses_its_lease_while_it_downloads_removes_what_it_has(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    deployment.settings = deployment.settings_with(lane_ack_seconds=lane_seconds(3.0))
    await deployment.start_graphs_worker()
    body = (await post(deployment.http, ARCHIVE, "k")).json()
    await held.reached.wait()
    (first,) = archives_on_disk(tmp_path)
    await deployment.sql.execute("DELETE FROM workers")  # as if it had been silent for long

    async def gone() -> bool:
        return not first.exists()

    await eventually_async(gone, "the folder is removed")
    held.go.set()
    ended = (await deployment.http.get(body["urls"]["poll"] + "?wait=60")).json()
    assert ended["status"] == "completed"  # it was given back, and taken again
    layers = (await complete_receipt(deployment, body))["layers"]
    assert [layer["layer"] for layer in layers].count("disk") == 2


async def test_a_folder_that_could_not_be_removed_is_not_said_to_be_gone(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as stubborn:
        stubborn.setattr(TempRoot, "remove", lambda *_: None)
        async with Deployment(dsn, tmp_path) as deployment:
            worker = await deployment.start_graphs_worker()
            body = (await post(deployment.http, ARCHIVE, "k", Prefer="wait=60")).json()
            assert body["status"] == "completed"
            await deployment.stop_worker(worker)
            (disk,) = [
                each
                for each in (await receipt_of(deployment, body))["layers"]
                if each["layer"] == "disk"
            ]
            assert disk["deletedAt"] is None
            assert not (await receipt_of(deployment, body))["complete"]
    # The worker's whole folder went when it ended, and with it what was left.
    assert archives_on_disk(tmp_path) == []
    assert (await record_of(dsn, body)).complete


async def test_a_folder_that_could_not_be_removed_is_removed_later(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "CLEANUP_SECONDS", 0.1)
    with monkeypatch.context() as stubborn:
        stubborn.setattr(TempRoot, "remove", lambda *_: None)
        await deployment.start_graphs_worker()
        body = (await post(deployment.http, ARCHIVE, "k", Prefer="wait=60")).json()
        assert body["status"] == "completed"
    receipt = await complete_receipt(deployment, body)
    assert mechanisms(receipt) == {"blob": "worker", "database": "end_of_job", "disk": "worker"}
    assert list((tmp_path / "temp").glob("*/*")) == []


async def test_an_interruption_while_the_copy_is_noted_leaves_no_open_record(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = asyncio.Event()
    note = inputs.note_disk_copy

    async def note_and_hang(line: Connection, job: ClaimedJob, place: str) -> float | None:
        await note(line, job, place)  # committed, and its answer never comes
        noted.set()
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr(inputs, "note_disk_copy", note_and_hang)
    async with Deployment(dsn, tmp_path) as deployment:
        worker = await deployment.start_graphs_worker()
        body = (await post(deployment.http, ARCHIVE, "k")).json()
        await noted.wait()
        await deployment.stop_worker(worker)
        assert (await deployment.engine.get(body["jobId"])).state.value == "queued"
    (disk,) = [copy for copy in (await record_of(dsn, body)).copies if copy.layer is Layer.DISK]
    assert disk.deleted_at is not None


async def test_a_server_that_is_stopped_in_the_middle_of_an_upload_leaves_nothing(
    deployment: Deployment, tmp_path: Path
) -> None:
    replica = await deployment.start_server()
    replica.server.config.timeout_graceful_shutdown = 1
    archive = zipped({"noise.bin": bytes(12 * MIB)}, method=0)
    stored = asyncio.Event()
    for_ever = asyncio.Event()

    async def gate() -> None:
        async def one_is_stored() -> bool:
            return bool(await inputs_in(deployment.engine.blobs))

        await eventually_async(one_is_stored, "the first piece is stored")
        stored.set()
        await for_ever.wait()

    sending = asyncio.create_task(post_through(gate, replica.http, archive, "k"))
    await stored.wait()
    await replica.stop()

    async def nothing_left() -> bool:
        return not await inputs_in(deployment.engine.blobs)

    await eventually_async(nothing_left, "the pieces are deleted")
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    # The key is free.
    assert (await post(deployment.http, ARCHIVE, "k")).headers["X-Usage-Units"] == "1"
