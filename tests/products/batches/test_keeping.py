"""How long a job of tasks and its results are kept, and how long URLs of its results live."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import Deployment
from tests.products.batches.asking import end_of, know_sums, submit, tasks_of, told
from tests.products.batches.sums import sums
from tests.products.batches.test_exports_over_http import written

DAY = timedelta(days=1)
LEAVE = {"endpoint": "/leave", "tasks": [{"text": "kept"}]}


@pytest.fixture
async def brief_deployment(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    """A deployment that keeps tasks for two hours, and signs URLs of their results for one."""
    settings = {"batch_keep_seconds": 7_200, "batch_url_seconds": 3_600}
    async with Deployment(dsn, tmp_path, keep_completed_seconds=60, **settings) as opened:
        await opened.start_worker(sums)
        await opened.start_batches_worker()
        opened.start_maintenance()
        yield opened


def between(first: str, last: str) -> timedelta:
    return datetime.fromisoformat(last) - datetime.fromisoformat(first)


def is_about(lived: timedelta, expected: timedelta) -> bool:
    """URLs are signed when they are asked for, which is some time after the job's end."""
    return timedelta(seconds=-1) <= lived - expected < timedelta(minutes=10)


async def left_file(
    deployment: Deployment, **options: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A job whose one task has left a file, and the task."""
    job = await end_of(deployment.http, await submit(deployment.http, **LEAVE, **options))
    (task,) = await tasks_of(deployment.http, job)
    return job, told(await deployment.http.get(task["urls"]["poll"]), 200)


async def test_a_job_of_tasks_is_kept_for_14_days_and_urls_of_results_for_one(
    working_deployment: Deployment,
) -> None:
    http = working_deployment.http
    job, task = await left_file(working_deployment)
    assert between(job["completed_at"], job["expires_at"]) == 14 * DAY
    assert task["expires_at"] == job["expires_at"], "a task goes with its job"
    (file,) = task["artifacts"]
    assert is_about(between(job["completed_at"], file["expires_at"]), DAY)
    (listed,) = told(await http.get(task["urls"]["artifacts"]), 200)["items"]
    assert is_about(between(job["completed_at"], listed["signed_url_expires_at"]), DAY)
    export = await written(working_deployment, told(await http.post(job["urls"]["exports"]), 202))
    assert between(export["completed_at"], export["expires_at"]) == DAY


async def test_a_deployment_says_how_long_apart_from_its_other_jobs(
    brief_deployment: Deployment,
) -> None:
    http = brief_deployment.http
    job, task = await left_file(brief_deployment)
    assert between(job["completed_at"], job["expires_at"]) == timedelta(hours=2)
    (file,) = task["artifacts"]
    hour = timedelta(hours=1)
    assert is_about(between(job["completed_at"], file["expires_at"]), hour)
    export = await written(brief_deployment, told(await http.post(job["urls"]["exports"]), 202))
    assert between(export["completed_at"], export["expires_at"]) == hour
    single = await http.post(
        "/api/v1/orgs/default/services/sums/async/add", json={"a": 1}, params={"wait": 60}
    )
    alone = told(single, 200)
    assert between(alone["completed_at"], alone["expires_at"]) == timedelta(minutes=1)


async def test_no_url_is_said_to_live_longer_than_what_it_leads_to(
    working_deployment: Deployment,
) -> None:
    http = working_deployment.http
    job, task = await left_file(working_deployment, keep_seconds=900)
    assert between(job["completed_at"], job["expires_at"]) == timedelta(minutes=15)
    assert between(task["artifacts"][0]["expires_at"], job["expires_at"]) >= timedelta(0)
    export = await written(working_deployment, told(await http.post(job["urls"]["exports"]), 202))
    assert export["expires_at"] == job["expires_at"]


async def test_a_job_that_goes_on_has_no_end_of_retention_and_neither_have_its_tasks(
    deployment: Deployment,
) -> None:
    await know_sums(deployment)
    job = await submit(deployment.http, [{"a": 1}])
    (task,) = await tasks_of(deployment.http, job)
    assert (job["expires_at"], task["expires_at"]) == (None, None)
