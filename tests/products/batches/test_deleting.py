"""DELETE, through the whole deployment: no row and no blob is left, whatever the job was doing."""

from __future__ import annotations

from pathlib import Path

import asyncpg

from coatcheck.domain.ids import from_text
from tests.deployment import Deployment
from tests.products.batches.asking import JOBS, end_of, lines, submit, submit_list, told
from tests.products.batches.recount import counters_equal_recounts
from tests.products.batches.sums import gates
from tests.waiting import eventually_async

TABLES = (
    "batches",
    "runs",
    "batch_parts",
    "batch_bad_lines",
    "batch_exports",
    "uploads",
    "run_limits",
    "run_tokens",
    "artifacts",
)


def files(folder: Path) -> list[Path]:
    return [path for path in (folder / "blobs").rglob("*") if path.is_file()]


async def nothing_is_left(dsn: str, folder: Path) -> None:
    connection = await asyncpg.connect(dsn)

    async def gone() -> bool:
        left = [await connection.fetchval(f"SELECT count(*) FROM {table}") for table in TABLES]
        left.append(await connection.fetchval("SELECT count(*) FROM jobs WHERE run_id IS NOT NULL"))
        return sum(left) == 0 and files(folder) == []

    try:
        await eventually_async(gone, "no row and no blob is left")
    finally:
        await connection.close()


async def test_of_a_deleted_job_with_files_and_an_export_nothing_is_left(
    working_deployment: Deployment, dsn: str, tmp_path: Path
) -> None:
    http = working_deployment.http
    listed = lines({"text": f"text {number}"} for number in range(20)) + b"no JSON\n"
    job = await submit_list(
        http, listed, status=202, endpoint="/leave", rate_per_second="1000", concurrency="5"
    )
    ended = await end_of(http, job)
    assert (ended["counts"]["succeeded"], ended["ingest"]["bad_lines"]) == (20, 1)
    await counters_equal_recounts(dsn, "default", from_text(job["id"]))
    export = told(await http.post(f"{JOBS}/{job['id']}/exports"), 202)

    async def written() -> bool:
        answer = await http.get(f"{JOBS}/{job['id']}/exports/{export['id']}")
        return told(answer, 200)["status"] == "completed"

    await eventually_async(written, "the export is written")
    assert len(files(tmp_path)) >= 21
    assert (await http.delete(f"{JOBS}/{job['id']}")).status_code == 204
    assert (await http.get(f"{JOBS}/{job['id']}")).status_code == 404
    await nothing_is_left(dsn, tmp_path)


async def test_a_job_that_runs_is_stopped_and_removed(
    working_deployment: Deployment, dsn: str, tmp_path: Path
) -> None:
    http = working_deployment.http
    job = await submit(http, [{"gate": "deleted"}] * 50, endpoint="/wait", concurrency=2)
    await gates.begun["deleted"].wait()
    assert (await http.delete(f"{JOBS}/{job['id']}")).status_code == 204
    await nothing_is_left(dsn, tmp_path)
