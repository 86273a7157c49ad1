"""A canary in an archive: whatever happens to the job, it is nowhere once the job is over.

The archive is stored, not packed, so that its bytes would be seen wherever they are. `pytest -s`
shows one line a scenario.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.crash_points import IS_THOROUGH, VICTIM, Victim
from tests.databases import Databases
from tests.e2e.canary.canary_deployment import CanaryDeployment, CanaryProcesses
from tests.e2e.canary.conftest import deployed
from tests.e2e.canary.sources import CANARY, SOURCES
from tests.products.graphs.archives import MIB, post, zipped
from tests.waiting import eventually_async

STORED = 0
ARCHIVE = zipped(SOURCES, method=STORED)
FUNCTION = f"def f(): return '{CANARY}'\n"
LARGE = zipped(
    SOURCES | {f"many/m{number}.py": FUNCTION * 250 for number in range(30)},
    method=STORED,
)
"""Takes long enough to be caught while it is parsed, and its graph does not fit into a row."""

SERVER_POINTS = [
    "submit.uploading:3",
    "submit.blob_stored",
    "input.inserted_not_committed",
    "input.blob_deleted_not_marked",
    "input.marked",
]
WORKER_POINTS = [
    "archive.downloaded",
    "artifact.blob_stored",
    "run.handler_returned",
    "finish.updated_not_committed",
    "finish.committed_not_notified",
]
ALIKE_POINTS = [  # nothing was fetched yet, or as much is there as at a point above
    "claim.committed_not_dispatched",
    "run.before_handler",
    "reports.committed",
    "finish.before_statement",
]
"""What the sweep of ``make chaos`` adds."""
DISPOSAL_POINTS = ["input.blob_deleted_not_marked", "input.marked"]
LOSER_POINT = "submit.loser_before_delete"
ARCHIVE_POINTS = {
    point.partition(":")[0]
    for point in (*SERVER_POINTS, *WORKER_POINTS, *DISPOSAL_POINTS, LOSER_POINT)
}
"""Every place where somebody is struck here."""


@pytest.fixture(scope="module")
def served_site(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CanaryProcesses]:
    """One that a server runs on."""
    with databases.shared() as dsn, furnished(dsn, tmp_path_factory.mktemp("served")) as site:
        site.serve()
        yield site


@pytest.fixture(scope="module")
def busy_site(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CanaryProcesses]:
    """One that a server and a worker run on."""
    with databases.shared() as dsn, furnished(dsn, tmp_path_factory.mktemp("busy")) as site:
        site.serve()
        site.work()
        yield site


@contextmanager
def furnished(dsn: str, folder: Path) -> Iterator[CanaryProcesses]:
    site = CanaryProcesses(dsn, folder)
    asyncio.run(site.furnish())
    try:
        yield site
    finally:
        site.close()


if VICTIM is Victim.POSTGRESQL:  # of which each test has one of its own then

    @pytest.fixture
    async def served(deployment: CanaryDeployment) -> CanaryDeployment:
        """A server runs there, and is not to be killed."""
        await deployment.serve()
        return deployment

else:

    @pytest.fixture
    async def served(served_site: CanaryProcesses) -> AsyncIterator[CanaryDeployment]:
        """A server runs there, and is not to be killed."""
        async with CanaryDeployment(served_site) as opened:
            await opened.answering()
            yield opened


@pytest.fixture
async def busy(busy_site: CanaryProcesses) -> AsyncIterator[CanaryDeployment]:
    """A server and a worker run there, and are not to be killed."""
    async with CanaryDeployment(busy_site) as opened:
        await opened.answering()
        yield opened


async def over(deployment: CanaryDeployment, job: str) -> dict[str, Any]:
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
    if VICTIM is Victim.PAUSE:  # whoever stands still keeps what it had fetched, and that is said
        kept = [path for path in deployment.files("temp") if CANARY.encode() in path.read_bytes()]
        assert not (kept and await complete())
        await deployment.struck_goes_on()
    await eventually_async(complete, "the receipt is complete")
    return body


async def expect_no_trace(
    deployment: CanaryDeployment, what: str, *, orphans: bool = False
) -> None:
    """``orphans``: nobody may know of an archive, and the sweeper finds it later."""
    await deployment.struck_goes_on()
    if not orphans:
        assert inputs(deployment) == []
    await deployment.sweep()
    assert await deployment.places_with(CANARY.encode()) == []
    left = {path.name for path in deployment.files("temp") if path.suffix != ".lock"}
    assert left <= {".coatcheck-disk"}
    assert inputs(deployment) == []
    print(f"{what}: nowhere")


def inputs(deployment: CanaryDeployment) -> list[Path]:
    return [path for path in deployment.files("blobs") if "inputs" in path.parts]


async def test_the_canary_would_be_seen(deployment: CanaryDeployment, key: str) -> None:
    await deployment.serve()
    assert (await post(deployment.http, ARCHIVE, key)).status_code == 202
    seen = await deployment.places_with(CANARY.encode())
    assert len(seen) == 1
    assert seen[0].startswith("blobs/inputs/")
    await deployment.sql.execute("UPDATE jobs SET error_message = $1", CANARY)
    assert "jobs" in await deployment.places_with(CANARY.encode())


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["dependency", "call", "domain", "parse", "supermodel"])
async def test_after_success(busy: CanaryDeployment, key: str, operation: str) -> None:
    answer = await post(busy.http, ARCHIVE, key, operation=operation)
    body = await over(busy, answer.json()["jobId"])
    assert body["status"] == "completed"
    assert CANARY not in str(body)
    assert body["result"]["stats"]["filesFailed"] == 0
    await expect_no_trace(busy, f"success of {operation}")


@pytest.mark.slow
async def test_after_a_success_whose_graph_is_in_the_blob_store(
    busy: CanaryDeployment, key: str
) -> None:
    before = set(busy.files("blobs"))
    answer = await post(busy.http, LARGE, key, operation="supermodel")
    body = await over(busy, answer.json()["jobId"])
    assert body["status"] == "completed"
    assert CANARY not in str(body)
    assert any("artifacts" in path.parts for path in set(busy.files("blobs")) - before)
    await expect_no_trace(busy, "success with an artifact")


@pytest.mark.slow
async def test_after_a_failure(busy: CanaryDeployment, key: str) -> None:
    broken = bytearray(ARCHIVE)
    at = broken.index(CANARY.encode())
    broken[at : at + 6] = b"CANARY"  # and its checksum is not true any more
    answer = await post(busy.http, bytes(broken), key)
    body = await over(busy, answer.json()["jobId"])
    assert (body["status"], body["errorCode"]) == ("failed", "archive_rejected")
    await expect_no_trace(busy, "failure")


async def test_after_a_refusal(served: CanaryDeployment, key: str) -> None:
    answer = await post(served.http, ARCHIVE + CANARY.encode(), key)
    assert answer.status_code == 422
    assert CANARY not in answer.text
    assert [path for path in served.files("blobs") if "artifacts" not in path.parts] == []
    await expect_no_trace(served, "refusal")


async def test_after_a_cancellation_before_it_started(served: CanaryDeployment, key: str) -> None:
    job = (await post(served.http, ARCHIVE, key)).json()["jobId"]
    assert (await served.http.post(f"/v1/graphs/jobs/{job}/cancel")).status_code == 200
    body = await over(served, job)
    assert body["errorCode"] == "cancelled"
    await expect_no_trace(served, "cancelled while it waited")


@pytest.mark.slow
async def test_after_a_cancellation_while_it_ran(busy: CanaryDeployment, key: str) -> None:
    job = (await post(busy.http, LARGE, key)).json()["jobId"]

    async def running() -> bool:
        answer = await busy.http.get(f"/v1/graphs/jobs/{job}")
        return bool(answer.json()["status"] == "processing")

    await eventually_async(running, "the job runs")
    assert (await busy.http.post(f"/v1/graphs/jobs/{job}/cancel")).status_code == 202
    body = await over(busy, job)
    assert body["errorCode"] == "cancelled"
    await expect_no_trace(busy, "cancelled while it ran")


async def test_after_its_time_to_live(dsn: str, tmp_path: Path, key: str) -> None:
    async with deployed(dsn, tmp_path, COATCHECK_ARCHIVE_TTL_SECONDS="1") as deployment:
        await deployment.serve()  # and no worker
        job = (await post(deployment.http, ARCHIVE, key)).json()["jobId"]
        body = await over(deployment, job)
        assert (body["status"], body["errorCode"]) == ("failed", "start_deadline_passed")
        await expect_no_trace(deployment, "expiry")


async def test_after_its_time_to_live_with_the_control_plane_dead(
    dsn: str, tmp_path: Path, key: str
) -> None:
    """The data plane does by itself what the control plane does by itself in the test above."""
    async with deployed(dsn, tmp_path, COATCHECK_ARCHIVE_TTL_SECONDS="1") as deployment:
        server = await deployment.serve()
        job = (await post(deployment.http, ARCHIVE, key)).json()["jobId"]
        await server.kill()
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
async def test_after_a_crash_of_the_server_at(
    deployment: CanaryDeployment, key: str, point: str
) -> None:
    server = await deployment.serve(crash_at=point)
    archive = ARCHIVE
    if "submit" in point:  # several pieces are stored before the last
        archive = zipped(SOURCES | {"noise.bin": CANARY.encode() * 1000 * 700}, method=STORED)
        assert len(archive) > 2 * 8 * MIB
    told: list[str] = []
    await deployment.strike_during(server, hand_in_and_cancel(deployment, archive, key, told))
    if VICTIM is not Victim.POSTGRESQL:
        await deployment.serve()
    if not told:
        again = await post(deployment.http, archive, key)
        assert again.status_code == 202
        assert again.headers["X-Usage-Units"] == "1"
        told.append(again.json()["jobId"])
    (job,) = told
    await deployment.http.post(f"/v1/graphs/jobs/{job}/cancel")
    await over(deployment, job)
    await expect_no_trace(
        deployment,
        f"{VICTIM.value} struck as a server was at {point}",
        orphans=VICTIM is not Victim.PAUSE and not point.startswith(tuple(DISPOSAL_POINTS)),
    )


async def hand_in_and_cancel(
    deployment: CanaryDeployment, archive: bytes, key: str, told: list[str]
) -> None:
    """As a caller does who notes the job that it is told of, and whose server may go away."""
    with suppress(httpx2.HTTPError):
        answer = await post(deployment.http, archive, key)
        if answer.status_code == 202:
            told.append(answer.json()["jobId"])
            await deployment.http.post(f"/v1/graphs/jobs/{told[0]}/cancel")
        else:
            assert (answer.status_code, VICTIM) == (503, Victim.POSTGRESQL)


@pytest.mark.crash
@pytest.mark.slow
async def test_after_the_loser_of_a_race_dies_before_it_deletes_its_archive(
    deployment: CanaryDeployment,
    key: str,
) -> None:
    """Two servers get the same key at the same time; one dies knowing that it has lost."""
    server = await deployment.serve(crash_at=LOSER_POINT)
    await deployment.strike_during(server, race(deployment, key))
    if VICTIM is not Victim.POSTGRESQL:
        await deployment.serve()
    winner = await post(deployment.http, ARCHIVE, key)
    assert winner.headers["Idempotent-Replayed"] == "true"
    job = winner.json()["jobId"]
    await deployment.http.post(f"/v1/graphs/jobs/{job}/cancel")
    await over(deployment, job)
    await expect_no_trace(
        deployment,
        f"{VICTIM.value} struck as a server had lost a race",
        orphans=VICTIM is not Victim.PAUSE,
    )


async def race(deployment: CanaryDeployment, key: str) -> None:
    """Send one key several times at once, of which two meet: then somebody is struck."""
    large = zipped(SOURCES | {"noise.bin": bytes(9 * MIB)}, method=STORED)
    answers = await asyncio.gather(
        *(post(deployment.http, large, key) for _ in range(4)), return_exceptions=True
    )
    if VICTIM is Victim.PROCESS:
        assert any(isinstance(answer, httpx2.HTTPError) for answer in answers)
    else:
        assert {getattr(answer, "status_code", answer) for answer in answers} <= {202, 503}


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("point", WORKER_POINTS + (ALIKE_POINTS if IS_THOROUGH else []))
async def test_after_a_crash_of_the_worker_at(
    served: CanaryDeployment, key: str, point: str
) -> None:
    archive = LARGE if point == "artifact.blob_stored" else ARCHIVE
    worker = served.work(crash_at=point)
    answer = await post(served.http, archive, key, operation="supermodel")
    await served.strike(worker)
    if VICTIM.is_exact:
        await served.bury()
    served.work()
    body = await over(served, answer.json()["jobId"])
    assert body["status"] == "completed"
    await expect_no_trace(served, f"{VICTIM.value} struck as a worker was at {point}")


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("point", DISPOSAL_POINTS)
async def test_after_a_crash_of_the_worker_as_it_deletes_at(
    deployment: CanaryDeployment, key: str, point: str
) -> None:
    async with deployment.no_forgetter():  # or the server's deletes it first, and nobody dies
        await deployment.serve()
        worker = deployment.work(crash_at=point)
        answer = await post(deployment.http, ARCHIVE, key)
        await deployment.strike(worker)
    body = await over(deployment, answer.json()["jobId"])
    assert body["status"] == "completed"
    await expect_no_trace(deployment, f"{VICTIM.value} struck as a worker was at {point}")


@pytest.mark.crash
@pytest.mark.slow
async def test_after_kill_9_of_the_worker_while_files_are_parsed(
    served: CanaryDeployment, key: str
) -> None:
    worker = served.work()
    answer = await post(served.http, LARGE, key)
    await served.kill_while_parsing(worker)
    assert any("archive" in str(path) for path in served.files("temp"))
    await served.bury()
    served.work()
    body = await over(served, answer.json()["jobId"])
    assert body["status"] == "completed"
    await expect_no_trace(served, "worker killed while it parsed")
