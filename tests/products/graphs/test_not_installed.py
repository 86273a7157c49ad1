"""A server without what analyses code, beside one that has it: new work is refused, old is read."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from coatcheck.settings.parsers import GRAPH_OPERATIONS
from tests.deployment import Deployment, Server
from tests.products.graphs.archives import PROGRAM, post, zipped

ARCHIVE = zipped(PROGRAM)


@pytest.fixture
async def without(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server that was started where the package cannot be imported."""
    with monkeypatch.context() as blocked:
        blocked.setitem(sys.modules, "coatcheck_codegraph", None)
        return await deployment.start_server()


@pytest.mark.parametrize("operation", GRAPH_OPERATIONS)
async def test_a_submission_is_refused_and_nothing_is_kept(
    without: Server, deployment: Deployment, tmp_path: Path, operation: str
) -> None:
    refused = await post(without.http, ARCHIVE, "k", operation=operation)
    assert refused.status_code == 501
    assert refused.json()["code"] == "graphs_not_installed"
    assert "Retry-After" not in refused.headers
    assert "X-Usage-Units" not in refused.headers
    assert not [name for _, _, names in os.walk(tmp_path / "blobs") for name in names]

    # The key is still free.
    assert (await post(deployment.http, ARCHIVE, "k", operation=operation)).status_code == 202


async def test_who_may_not_submit_learns_nothing_of_it(
    without: Server, deployment: Deployment
) -> None:
    nobody = await post(without.http, ARCHIVE, "k", Authorization="Bearer no-such-key")
    assert nobody.status_code == 401
    assert "graphs" not in nobody.text


async def test_jobs_that_are_there_are_polled_and_read(
    without: Server, deployment: Deployment
) -> None:
    await deployment.start_graphs_worker()
    made = await post(deployment.http, ARCHIVE, "done", Prefer="wait=60")
    assert made.status_code == 200, made.text
    again = await post(without.http, ARCHIVE, "done")
    assert again.json() == made.json()
    assert again.headers["Idempotent-Replayed"] == "true"
    read = await without.http.get(f"/v1/graphs/jobs/{made.json()['jobId']}")
    assert read.json()["result"] == made.json()["result"]


async def test_a_job_that_waits_can_be_cancelled(without: Server, deployment: Deployment) -> None:
    waiting = (await post(deployment.http, ARCHIVE, "waits")).json()
    cancelled = await without.http.post(waiting["urls"]["cancel"])
    assert cancelled.is_success
    assert (await without.http.get(waiting["urls"]["poll"])).json()["errorCode"] == "cancelled"
