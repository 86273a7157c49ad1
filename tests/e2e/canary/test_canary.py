"""A canary in an archive: whatever happens to the job, it is nowhere once the job is over.

The archive is stored, not packed, so that its bytes would be seen wherever they are. `pytest -s`
shows one line a scenario.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.canary.deployment import Deployment
from tests.e2e.canary.sources import CANARY, SOURCES
from tests.surfaces.graphs.archives import MIB, post, zipped
from tests.waiting import eventually_async

STORED = 0
ARCHIVE = zipped(SOURCES, method=STORED)
FUNCTION = f"def f(): return '{CANARY}'\n"
LARGE = zipped(
    SOURCES | {f"many/m{number}.py": FUNCTION * 250 for number in range(30)},
    method=STORED,
)
"""Takes long enough to be caught while it is parsed, and its graph does not fit into a row."""
KEY = "k"

SERVER_POINTS = [
    "submit.uploading:3",
    "submit.blob_stored",
    "input.inserted_not_committed",
    "input.blob_deleted_not_marked",
    "input.marked",
]
WORKER_POINTS = [
    "claim.committed_not_dispatched",
    "run.before_handler",
    "archive.downloaded",
    "artifact.blob_stored",
    "run.handler_returned",
    "reports.committed",
    "finish.before_statement",
    "finish.updated_not_committed",
    "finish.committed_not_notified",
    "input.blob_deleted_not_marked",
    "input.marked",
]
LOSER_POINT = "submit.loser_before_delete"
ARCHIVE_POINTS = {point.partition(":")[0] for point in (*SERVER_POINTS, *WORKER_POINTS)} | {
    LOSER_POINT
}
"""Every place where a process is killed here."""


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with Deployment(dsn, tmp_path) as opened:
        yield opened


async def over(deployment: Deployment, job: str) -> dict[str, Any]:
    """The job once it has ended, and its receipt says that no copy of the archive is left."""

    async def ended() -> dict[str, Any] | None:
        await deployment.end_leases_of_the_dead()
        answer = await deployment.http.get(f"/v1/graphs/jobs/{job}?wait=10")
        body: dict[str, Any] = answer.json()
        return body if answer.status_code == 200 else None

    async def complete() -> bool:
        answer = await deployment.http.get(f"/v1/graphs/jobs/{job}/receipt")
        return bool(answer.json()["receipt"]["complete"])

    body: dict[str, Any] = await eventually_async(ended, "the job has ended")
    await eventually_async(complete, "the receipt is complete")
    return body


async def expect_no_trace(deployment: Deployment, what: str) -> None:
    await deployment.sweep()
    assert await deployment.places_with(CANARY.encode()) == []
    left = {path.name for path in deployment.files("temp") if path.suffix != ".lock"}
    assert left <= {".coatcheck-disk"}
    blobs = [str(path) for path in deployment.files("blobs")]
    assert [path for path in blobs if "/inputs/" in path] == []
    print(f"{what}: nowhere")


async def test_the_canary_would_be_seen(deployment: Deployment) -> None:
    await deployment.serve()
    assert (await post(deployment.http, ARCHIVE, KEY)).status_code == 202
    seen = await deployment.places_with(CANARY.encode())
    assert len(seen) == 1
    assert seen[0].startswith("blobs/inputs/")
    await deployment.sql.execute("UPDATE jobs SET error_message = $1", CANARY)
    assert "jobs" in await deployment.places_with(CANARY.encode())


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["dependency", "call", "domain", "parse", "supermodel"])
async def test_after_success(deployment: Deployment, operation: str) -> None:
    await deployment.serve()
    deployment.work()
    answer = await post(deployment.http, ARCHIVE, KEY, operation=operation)
    body = await over(deployment, answer.json()["jobId"])
    assert body["status"] == "completed"
    assert CANARY not in str(body)
    assert body["result"]["stats"]["filesFailed"] == 0
    await expect_no_trace(deployment, f"success of {operation}")


@pytest.mark.slow
async def test_after_a_success_whose_graph_is_in_the_blob_store(deployment: Deployment) -> None:
    await deployment.serve()
    deployment.work()
    answer = await post(deployment.http, LARGE, KEY, operation="supermodel")
    body = await over(deployment, answer.json()["jobId"])
    assert body["status"] == "completed"
    assert CANARY not in str(body)
    assert any("/artifacts/" in str(path) for path in deployment.files("blobs"))
    await expect_no_trace(deployment, "success with an artifact")


@pytest.mark.slow
async def test_after_a_failure(deployment: Deployment) -> None:
    await deployment.serve()
    deployment.work()
    broken = bytearray(ARCHIVE)
    at = broken.index(CANARY.encode())
    broken[at : at + 6] = b"CANARY"  # and its checksum is not true any more
    answer = await post(deployment.http, bytes(broken), KEY)
    body = await over(deployment, answer.json()["jobId"])
    assert (body["status"], body["errorCode"]) == ("failed", "archive_rejected")
    await expect_no_trace(deployment, "failure")


async def test_after_a_refusal(deployment: Deployment) -> None:
    await deployment.serve()
    answer = await post(deployment.http, ARCHIVE + CANARY.encode(), KEY)
    assert answer.status_code == 422
    assert CANARY not in answer.text
    assert deployment.files("blobs") == []
    await expect_no_trace(deployment, "refusal")


async def test_after_a_cancellation_before_it_started(deployment: Deployment) -> None:
    await deployment.serve()
    job = (await post(deployment.http, ARCHIVE, KEY)).json()["jobId"]
    assert (await deployment.http.post(f"/v1/graphs/jobs/{job}/cancel")).status_code == 200
    body = await over(deployment, job)
    assert body["errorCode"] == "cancelled"
    await expect_no_trace(deployment, "cancelled while it waited")


@pytest.mark.slow
async def test_after_a_cancellation_while_it_ran(deployment: Deployment) -> None:
    await deployment.serve()
    deployment.work()
    job = (await post(deployment.http, LARGE, KEY)).json()["jobId"]

    async def running() -> bool:
        answer = await deployment.http.get(f"/v1/graphs/jobs/{job}")
        return bool(answer.json()["status"] == "processing")

    await eventually_async(running, "the job runs")
    assert (await deployment.http.post(f"/v1/graphs/jobs/{job}/cancel")).status_code == 202
    body = await over(deployment, job)
    assert body["errorCode"] == "cancelled"
    await expect_no_trace(deployment, "cancelled while it ran")


async def test_after_its_time_to_live(dsn: str, tmp_path: Path) -> None:
    async with Deployment(dsn, tmp_path, COATCHECK_ARCHIVE_TTL_SECONDS="1") as deployment:
        await deployment.serve()  # and no worker
        job = (await post(deployment.http, ARCHIVE, KEY)).json()["jobId"]
        body = await over(deployment, job)
        assert (body["status"], body["errorCode"]) == ("failed", "start_deadline_passed")
        await expect_no_trace(deployment, "expiry")


async def test_after_its_time_to_live_with_the_control_plane_dead(dsn: str, tmp_path: Path) -> None:
    """The data plane does by itself what the control plane does by itself in the test above."""
    async with Deployment(dsn, tmp_path, COATCHECK_ARCHIVE_TTL_SECONDS="1") as deployment:
        server = await deployment.serve()
        job = (await post(deployment.http, ARCHIVE, KEY)).json()["jobId"]
        server.kill()
        server.wait()
        deployment.work(COATCHECK_GRAPHS_CONCURRENCY="0")

        async def failed() -> bool:
            return bool(
                await deployment.sql.fetchval(
                    "SELECT error_code = 'start_deadline_passed' AND NOT EXISTS"
                    " (SELECT FROM input_copies WHERE deleted_at IS NULL) FROM jobs"
                )
            )

        await eventually_async(failed, "the data plane fails it and deletes its archive")
        await expect_no_trace(deployment, "expiry without a control plane")
        await deployment.serve()
        assert (await over(deployment, job))["status"] == "failed"


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("point", SERVER_POINTS)
async def test_after_a_crash_of_the_server_at(deployment: Deployment, point: str) -> None:
    server = await deployment.serve(crash_at=point)
    large = zipped(SOURCES | {"noise.bin": CANARY.encode() * 1000 * 700}, method=STORED)
    assert len(large) > 2 * 8 * MIB  # several pieces are stored before the last
    job = None
    try:
        job = (await post(deployment.http, large, KEY)).json()["jobId"]
        await deployment.http.post(f"/v1/graphs/jobs/{job}/cancel")
    except httpx2.HTTPError:
        assert job is None
    await deployment.died(server)
    await deployment.serve()
    if job is None:
        again = await post(deployment.http, large, KEY)
        assert again.status_code == 202
        assert again.headers["X-Usage-Units"] == "1"
        job = again.json()["jobId"]
        await deployment.http.post(f"/v1/graphs/jobs/{job}/cancel")
    await over(deployment, job)
    await expect_no_trace(deployment, f"server killed at {point}")


@pytest.mark.crash
@pytest.mark.slow
async def test_after_the_loser_of_a_race_dies_before_it_deletes_its_archive(
    deployment: Deployment,
) -> None:
    """Two servers get the same key at the same time; one dies knowing that it has lost."""
    server = await deployment.serve(crash_at=LOSER_POINT)
    await race(deployment)
    await deployment.died(server)
    await deployment.serve()
    winner = await post(deployment.http, ARCHIVE, KEY)
    assert winner.headers["Idempotent-Replayed"] == "true"
    job = winner.json()["jobId"]
    await deployment.http.post(f"/v1/graphs/jobs/{job}/cancel")
    await over(deployment, job)
    await expect_no_trace(deployment, "loser of a race killed")


async def race(deployment: Deployment) -> None:
    """Send one key several times at once, until two of them met: then the server has died."""
    large = zipped(SOURCES | {"noise.bin": bytes(9 * MIB)}, method=STORED)
    answers = await asyncio.gather(
        *(post(deployment.http, large, KEY) for _ in range(4)), return_exceptions=True
    )
    assert any(isinstance(answer, httpx2.HTTPError) for answer in answers)


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("point", WORKER_POINTS)
async def test_after_a_crash_of_the_worker_at(deployment: Deployment, point: str) -> None:
    async with deployment.no_forgetter():  # or the server's deletes it first, and nobody dies
        await deployment.serve()
        worker = deployment.work(crash_at=point)
        answer = await post(deployment.http, LARGE, KEY, operation="supermodel")
        await deployment.died(worker)
    await deployment.bury()
    deployment.work()
    body = await over(deployment, answer.json()["jobId"])
    assert body["status"] == "completed"
    await expect_no_trace(deployment, f"worker killed at {point}")


@pytest.mark.crash
@pytest.mark.slow
async def test_after_kill_9_of_the_worker_while_files_are_parsed(deployment: Deployment) -> None:
    await deployment.serve()
    worker = deployment.work()
    answer = await post(deployment.http, LARGE, KEY)
    deployment.kill_while_parsing(worker)
    assert any("archive" in str(path) for path in deployment.files("temp"))
    await deployment.bury()
    deployment.work()
    body = await over(deployment, answer.json()["jobId"])
    assert body["status"] == "completed"
    await expect_no_trace(deployment, "worker killed while it parsed")
