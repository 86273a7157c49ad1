"""What callers see of a blob store that goes away, and what is left once it is back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck.blobs import BlobContainer
from coatcheck.domain.states import State
from coatcheck.products.graphs import naming
from coatcheck.products.graphs.executor import GraphExecutor
from coatcheck.settings import Settings
from coatcheck.worker.worker import Worker
from tests.blobs.stores import BlobStore
from tests.blobs.unsteady_proxy import UnsteadyProxy
from tests.deployment import Deployment
from tests.products.graphs.archives import PROGRAM, post, zipped
from tests.products.graphs.gated import THREE_PIECES, post_through
from tests.products.graphs.store_away import Switch, failing_for, switchable
from tests.products.graphs.stored import complete_receipt, inputs_in, mechanisms, receipt_of, sweep
from tests.waiting import eventually_async

ARCHIVE = zipped(PROGRAM)
NOT_DELETED = "an input could not be deleted"


@pytest.fixture
async def store(
    blob_store: BlobStore, container: BlobContainer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Switch]:
    """The store of the deployment. ``container`` was opened before, and is never in its way."""
    async with switchable(blob_store, monkeypatch) as switch:
        yield switch


@pytest.fixture
async def deployment(
    dsn: str, tmp_path: Path, blob_store: BlobStore, store: Switch
) -> AsyncIterator[Deployment]:
    async with Deployment(dsn, tmp_path, blob_url=blob_store.url) as opened:
        await opened.engine.blobs.probe()  # opened while the store is there
        yield opened


async def expect_free(deployment: Deployment, key: str) -> None:
    """A key that no job has: new work can be handed in with it."""
    answer = await post(deployment.http, ARCHIVE, key)
    assert (answer.status_code, answer.headers["X-Usage-Units"]) == (202, "1")


async def test_nothing_is_kept_of_an_archive_that_the_store_did_not_take(
    deployment: Deployment, store: Switch, container: BlobContainer
) -> None:
    store.leave()
    answer = await post(deployment.http, ARCHIVE, "k")
    store.come_back()
    assert answer.status_code == 503
    assert answer.json()["code"] == "blob_store_unavailable"
    assert await inputs_in(container) == []
    await expect_free(deployment, "k")


async def test_what_the_store_took_before_it_went_away_is_swept_when_it_is_back(
    deployment: Deployment, store: Switch, container: BlobContainer
) -> None:
    async def first_piece_is_stored() -> None:
        async def look() -> list[str]:
            return await inputs_in(container)

        await eventually_async(look, "the first piece is stored")
        store.leave()

    answer = await post_through(first_piece_is_stored, deployment.http, THREE_PIECES, "k")
    store.come_back()
    assert answer.status_code == 503
    assert answer.json()["code"] == "blob_store_unavailable"
    assert [key[-6:] for key in await inputs_in(container)] == ["/00000"]
    await sweep(deployment, container)
    assert await inputs_in(container) == []
    await expect_free(deployment, "k")


@pytest.mark.parametrize("blob_store", ["s3", "azure"], indirect=True)
async def test_the_pieces_before_one_that_failed_are_deleted_at_once(
    dsn: str,
    tmp_path: Path,
    blob_store: BlobStore,
    container: BlobContainer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def second_piece(request: str) -> bool:
        return request.startswith("PUT ") and "/00001" in request

    async with (
        failing_for(second_piece, blob_store, monkeypatch) as proxy,
        Deployment(dsn, tmp_path, blob_url=blob_store.url) as deployment,
    ):
        answer = await post(deployment.http, THREE_PIECES, "k")
        assert answer.status_code == 503
        assert answer.json()["code"] == "blob_store_unavailable"
        assert stored_first_piece(proxy)
        assert await inputs_in(container) == []
        await expect_free(deployment, "k")


def stored_first_piece(proxy: UnsteadyProxy) -> bool:
    return any(line.startswith("PUT ") and "/00000" in line for line in proxy.requests)


async def test_an_archive_that_cannot_be_fetched_is_fetched_later(
    deployment: Deployment, store: Switch, container: BlobContainer
) -> None:
    deployment.start_maintenance()
    answer = await post(deployment.http, THREE_PIECES, "k")
    job = answer.json()["jobId"]
    async with idle_worker(deployment) as worker:
        store.leave()
        working = asyncio.create_task(worker.run())

        async def to_be_tried_again() -> bool:
            return (await deployment.engine.get(job)).state is State.RETRYING

        await eventually_async(to_be_tried_again, "the job is to be tried again")
        waiting = await deployment.http.get(answer.json()["urls"]["poll"])
        assert (waiting.status_code, waiting.json()["status"]) == (202, "processing")
        store.come_back()
        ended = await deployment.http.get(f"{answer.json()['urls']['poll']}?wait=60")
        assert ended.json()["status"] == "completed"
        assert ended.json()["result"]["stats"]["calls"]["resolved"] == 1
        receipt = await complete_receipt(deployment, ended.json())
        worker.stop()
        await working
    assert [layer["layer"] for layer in receipt["layers"]].count("disk") >= 2  # one an attempt
    assert await inputs_in(container) == []


@contextlib.asynccontextmanager
async def idle_worker(deployment: Deployment) -> AsyncIterator[Worker]:
    """A worker that has opened its store and claims nothing yet."""
    async with GraphExecutor(deployment.settings, deployment.database) as graphs:
        yield graphs.worker()


async def test_an_answer_does_not_wait_for_a_deletion_which_is_made_up_for_later(
    deployment: Deployment,
    store: Switch,
    container: BlobContainer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    analysed, go_on = asyncio.Event(), asyncio.Event()
    complete = naming.complete

    async def hold(settings: Settings, folder: Path) -> Path:
        analysed.set()
        await go_on.wait()
        return await complete(settings, folder)

    monkeypatch.setattr(naming, "complete", hold)
    await deployment.start_graphs_worker()
    answer = await post(deployment.http, THREE_PIECES, "k")
    await asyncio.wait_for(analysed.wait(), 60)
    upkeep = deployment.start_maintenance()
    store.leave()
    with caplog.at_level(logging.WARNING, "coatcheck.core.artifacts"):
        go_on.set()
        ended = await deployment.http.get(f"{answer.json()['urls']['poll']}?wait=60")
        assert (ended.status_code, ended.json()["status"]) == (200, "completed")

        async def has_been_tried() -> bool:
            return caplog.text.count(NOT_DELETED) >= 2  # by the worker, and by the upkeep

        await eventually_async(has_been_tried, "both have tried to delete it")
    early = await receipt_of(deployment, ended.json())
    assert not early["complete"]
    assert {layer["layer"]: layer["deletedAt"] is None for layer in early["layers"]} == {
        "blob": True,
        "disk": False,
        "database": False,
    }
    store.come_back()
    assert len(await inputs_in(container)) == 3
    late = await complete_receipt(deployment, ended.json())
    await upkeep.stop()
    assert mechanisms(late) == {"blob": "upkeep", "disk": "worker", "database": "end_of_job"}
    assert await inputs_in(container) == []
