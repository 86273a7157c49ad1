"""Jobs that wait for longer than their lane should need say so, and why."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coatcheck.domain.lanes import Lane
from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.asking import end_of, hand_in, know_docs
from tests.products.gateway.docs_service import docs
from tests.waiting import eventually_async


@pytest.fixture
async def impatient(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    """A deployment whose urgent lane should need a second."""
    patience = {Lane.URGENT: 1.0, Lane.STANDARD: 120.0, Lane.BULK: 300.0}
    async with Deployment(dsn, tmp_path, lane_ack_seconds=patience) as opened:
        yield opened


async def test_a_job_that_no_worker_takes_is_stalled_until_one_does(impatient: Deployment) -> None:
    await know_docs(impatient)
    urgent = await hand_in(impatient.http, "/process", X_HSL_Lane="urgent")
    patient = await hand_in(impatient.http, "/process")

    async def stalled() -> dict[str, Any] | None:
        job: dict[str, Any] = (await impatient.http.get(urgent["poll_url"])).json()
        return job if job["stalled"] else None

    job = await eventually_async(stalled, "the job is said to be stalled")
    assert (job["status"], job["stalled_reason"]) == ("queued", "no_worker")
    listed = (await impatient.http.get(paths.jobs())).json()["items"]
    assert {job["id"]: job["stalled_reason"] for job in listed} == {
        urgent["job_id"]: "no_worker",
        patient["job_id"]: None,
    }
    await impatient.start_worker(docs)
    job = await end_of(impatient.http, urgent)
    assert (job["stalled"], job["stalled_reason"]) == (False, None)
    assert job["pre_dispatch_age_seconds"] > 1
