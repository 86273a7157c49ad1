"""The blob store fails, disconnects or is slow: callers get errors, jobs retry, nothing is lost.

The store is an S3 server behind a proxy that makes requests fail for a while.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path

import pytest

from chaos.environment.blob_checks import every_artifact_is_whole, nothing_else_is_kept, sweep
from chaos.environment.installation import Installation
from chaos.environment.waiting import until
from coatcheck.blobs import BlobContainer
from tests.blobs.stores import BlobStore, blob_store_of
from tests.blobs.unsteady_proxy import Spoil, UnsteadyProxy, answering, hanging_up
from tests.conftest import SESSION_DIR_VARIABLE
from tests.products.graphs.archives import post, zipped

ALL = 1_000_000_000
FAULTS = {"refusing": answering("503 Slow Down"), "hanging up": hanging_up}
ARTIFACT_BYTES = 30_000


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return blob_store_of("s3", Path(os.environ[SESSION_DIR_VARIABLE]), tmp_path)


@pytest.fixture
async def proxy(store: BlobStore) -> AsyncIterator[UnsteadyProxy]:
    made = UnsteadyProxy(store.environment["AWS_ENDPOINT_URL"], hanging_up, 0)
    async with made.running() as running:
        yield running


@pytest.fixture
async def installed(
    dsn: str, tmp_path: Path, store: BlobStore, proxy: UnsteadyProxy
) -> AsyncIterator[Installation]:
    through = {**store.environment, "AWS_ENDPOINT_URL": proxy.url}
    async with Installation(
        dsn, tmp_path, COATCHECK_BLOB_URL=store.url, COATCHECK_GRAPHS_CONCURRENCY="1", **through
    ) as opened:
        await opened.serve()
        await opened.work()
        yield opened


@pytest.fixture
def blobs(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> BlobContainer:
    """The test's own connection to the store, without the proxy."""
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    return BlobContainer.open(store.url)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_store_that_fails_is_said_to_callers_and_jobs_wait_for_it(
    installed: Installation, proxy: UnsteadyProxy, blobs: BlobContainer, fault: str
) -> None:
    installed.callers.start(2, "/attach", size=ARTIFACT_BYTES)
    await installed.ran_more(5)

    spoil(proxy, FAULTS[fault])
    refused = await post(installed.http, zipped({"a.py": "x = 1\n"}), "an archive")
    assert refused.status_code == HTTPStatus.SERVICE_UNAVAILABLE, refused.text
    assert refused.json()["code"] == "blob_store_unavailable"
    assert "retry-after" in refused.headers
    await _some_are_tried_again(installed)

    proxy.times = 0
    taken = await post(installed.http, zipped({"a.py": "x = 1\n"}), "an archive")
    assert taken.is_success, taken.text
    await installed.callers.stop()
    assert installed.callers.refusals == []  # submitting these needs no blob
    await _all_is_well(installed, blobs)
    assert await installed.sql.fetchval("SELECT sum(failures) FROM jobs") == 0


async def test_a_slow_store_makes_nothing_fail(
    installed: Installation, proxy: UnsteadyProxy, blobs: BlobContainer
) -> None:
    async def late(writer: asyncio.StreamWriter, request: bytes) -> None:
        await asyncio.sleep(1.0)  # the fault itself, not a wait for something
        writer.write(await proxy.forwarded(request))
        await writer.drain()

    spoil(proxy, late)
    installed.callers.start(2, "/attach", size=ARTIFACT_BYTES)
    taken = await post(installed.http, zipped({"a.py": "x = 1\n"}), "an archive")
    assert taken.is_success, taken.text
    await installed.ran_more(5)
    await installed.callers.stop()
    await _all_is_well(installed, blobs)
    assert await installed.sql.fetchval("SELECT sum(failures) FROM jobs") == 0


def spoil(proxy: UnsteadyProxy, fault: Spoil) -> None:
    """From now on, until ``times`` is 0 again."""
    proxy.spoil = fault
    proxy.times = ALL


async def _all_is_well(installed: Installation, blobs: BlobContainer) -> None:
    await installed.all_ended()
    states = await installed.sql.fetch("SELECT state::text, count(*) FROM jobs GROUP BY 1")
    assert [state for state, _ in states] == ["completed"], states
    await sweep(installed, blobs)  # removes everything that is not in use
    artifacts = await every_artifact_is_whole(installed, blobs)
    assert artifacts >= len(installed.callers.acknowledged)
    await nothing_else_is_kept(installed, blobs)


async def _some_are_tried_again(installed: Installation) -> None:
    async def look() -> bool:
        return bool(
            await installed.sql.fetchval(
                "SELECT count(*) FROM jobs WHERE error_code = 'target_unreachable'"
            )
        )

    await until(look, "a job that could not store is to be tried again")
