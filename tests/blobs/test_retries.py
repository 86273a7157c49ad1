"""What is repeated, how often, and what is said in the end: on servers that fail, and a disk."""

from __future__ import annotations

import asyncio
import os
import resource
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from coatcheck.blobs import BlobContainer, errors
from coatcheck.blobs.container import BlobRetryPolicy
from coatcheck.domain.errors import BlobStoreUnavailable
from coatcheck.domain.retry import BLOB_BACKOFF, BLOB_RETRIES, Backoff
from tests.blobs.stores import BlobStore
from tests.blobs.unsteady_proxy import (
    UnsteadyProxy,
    answering,
    hanging_up,
    keeping_silent,
)
from tests.waiting import eventually_async

CONTENT = b"content" * 1000
SECRET = "c2VjcmV0LXNlY3JldA=="
SOON = Backoff(base_seconds=0.001, cap_seconds=0.01, jitter=0.5)
HASTY = BlobRetryPolicy(backoff=SOON)
ENDPOINTS = {"s3": "AWS_ENDPOINT_URL", "azure": "AZURITE_BLOB_STORAGE_URL"}

on_servers = pytest.mark.parametrize("blob_store", ["s3", "azure"], indirect=True)


async def put(container: BlobContainer) -> None:
    await container.put_whole("a/b", CONTENT)


async def get(container: BlobContainer) -> None:
    assert await container.get("a/b") == CONTENT


async def stream(container: BlobContainer) -> None:
    assert b"".join([chunk async for chunk in container.stream("a/b")]) == CONTENT


async def delete(container: BlobContainer) -> None:
    await container.delete(["a/b"])


async def listing(container: BlobContainer) -> None:
    assert [key async for page in container.keys_under("a") for key in page] == ["a/b"]


OPERATIONS = [put, get, stream, delete, listing]
PASSING = {
    "500": answering("500 Internal Server Error"),
    "503": answering("503 Service Unavailable"),
    "429": answering("429 Too Many Requests"),
    "connection_lost": hanging_up,
}
LASTING = {
    "400": answering("400 Bad Request"),
    "401": answering("401 Unauthorized"),
    "403": answering("403 Forbidden"),
}


@on_servers
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("failure", PASSING)
async def test_three_failures_that_may_pass_are_survived_and_the_fourth_is_told(
    container: BlobContainer,
    blob_store: BlobStore,
    monkeypatch: pytest.MonkeyPatch,
    operation: Callable[[BlobContainer], Awaitable[None]],
    failure: str,
) -> None:
    await container.put_whole("a/b", CONTENT)
    upstream = blob_store.environment[ENDPOINTS[blob_store.kind]]
    async with UnsteadyProxy(upstream, PASSING[failure], times=3).running() as proxy:
        monkeypatch.setenv(ENDPOINTS[blob_store.kind], proxy.url)
        await operation(BlobContainer.open(blob_store.url, HASTY))
        assert len(proxy.requests) == 4
    await container.put_whole("a/b", CONTENT)
    async with UnsteadyProxy(upstream, PASSING[failure], times=4).running() as proxy:
        monkeypatch.setenv(ENDPOINTS[blob_store.kind], proxy.url)
        with pytest.raises(BlobStoreUnavailable):
            await operation(BlobContainer.open(blob_store.url, HASTY))
        assert len(proxy.requests) == 4


@on_servers
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_server_that_keeps_silent_is_asked_three_times_more(
    blob_store: BlobStore,
    monkeypatch: pytest.MonkeyPatch,
    operation: Callable[[BlobContainer], Awaitable[None]],
) -> None:
    retry_policy = BlobRetryPolicy(backoff=SOON, answer=timedelta(milliseconds=500))
    async with UnsteadyProxy("", keeping_silent, times=99).running() as proxy:
        monkeypatch.setenv(ENDPOINTS[blob_store.kind], proxy.url)
        with pytest.raises(BlobStoreUnavailable):
            await operation(BlobContainer.open(blob_store.url, retry_policy))
        await eventually_async(lambda: has_come(proxy, 4), "the fourth request is counted")


async def has_come(proxy: UnsteadyProxy, requests: int) -> bool:
    assert len(proxy.requests) <= requests
    return len(proxy.requests) == requests


@on_servers
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("failure", LASTING)
async def test_a_refusal_is_told_at_once(
    blob_store: BlobStore,
    monkeypatch: pytest.MonkeyPatch,
    operation: Callable[[BlobContainer], Awaitable[None]],
    failure: str,
) -> None:
    async with UnsteadyProxy("", LASTING[failure], times=99).running() as proxy:
        monkeypatch.setenv(ENDPOINTS[blob_store.kind], proxy.url)
        with pytest.raises(BlobStoreUnavailable):
            await operation(BlobContainer.open(blob_store.url, HASTY))
        assert len(proxy.requests) == 1


@on_servers
async def test_what_is_not_there_is_asked_for_once(
    blob_store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream = blob_store.environment[ENDPOINTS[blob_store.kind]]
    async with UnsteadyProxy(upstream, hanging_up, times=0).running() as proxy:
        monkeypatch.setenv(ENDPOINTS[blob_store.kind], proxy.url)
        with pytest.raises(FileNotFoundError):
            await BlobContainer.open(blob_store.url, HASTY).get("a/missing")
        assert len(proxy.requests) == 1


@on_servers
@pytest.mark.parametrize("operation", [get, stream])
async def test_an_answer_that_breaks_off_is_asked_for_again(
    container: BlobContainer,
    blob_store: BlobStore,
    monkeypatch: pytest.MonkeyPatch,
    operation: Callable[[BlobContainer], Awaitable[None]],
) -> None:
    await container.put_whole("a/b", CONTENT)
    upstream = blob_store.environment[ENDPOINTS[blob_store.kind]]
    proxy = UnsteadyProxy(upstream, hanging_up, times=1)

    async def half(writer: asyncio.StreamWriter, request: bytes) -> None:
        writer.write((await proxy.forwarded(request))[: -len(CONTENT) // 2])
        await writer.drain()

    proxy.spoil = half
    async with proxy.running():
        monkeypatch.setenv(ENDPOINTS[blob_store.kind], proxy.url)
        await operation(BlobContainer.open(blob_store.url, HASTY))
        assert len(proxy.requests) == 2


@pytest.mark.parametrize("blob_store", ["s3"], indirect=True)
async def test_a_deletion_done_in_part_is_asked_for_again(
    container: BlobContainer, blob_store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await container.put_whole("a/b", CONTENT)
    in_part = answering(
        "200 OK",
        b"<DeleteResult><Error><Key>a/b</Key><Code>InternalError</Code>"
        b"<Message>Please try again.</Message></Error></DeleteResult>",
    )
    upstream = blob_store.environment[ENDPOINTS[blob_store.kind]]
    async with UnsteadyProxy(upstream, in_part, times=2).running() as proxy:
        monkeypatch.setenv(ENDPOINTS[blob_store.kind], proxy.url)
        await BlobContainer.open(blob_store.url, HASTY).delete(["a/b"])
        assert len(proxy.requests) == 3
    with pytest.raises(FileNotFoundError):
        await container.get("a/b")


@pytest.mark.parametrize("scheme", ["s3", "az"])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("failure", PASSING | LASTING)
async def test_no_error_tells_an_address_a_name_or_a_credential(
    monkeypatch: pytest.MonkeyPatch,
    scheme: str,
    operation: Callable[[BlobContainer], Awaitable[None]],
    failure: str,
) -> None:
    spoil = (PASSING | LASTING)[failure]
    async with UnsteadyProxy("", spoil, times=99).running() as proxy:
        for name, value in {
            "AWS_ENDPOINT_URL": proxy.url,
            "AWS_ACCESS_KEY_ID": "some-key",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AZURE_STORAGE_ENDPOINT": f"{proxy.url}/acc",
            "AZURE_STORAGE_ACCOUNT_NAME": "acc",
            "AZURE_STORAGE_SAS_KEY": f"sv=2022-11-02&sig={SECRET}",
        }.items():
            monkeypatch.setenv(name, value)
        container = BlobContainer.open(f"{scheme}://the-bucket/the-prefix", HASTY)
        with pytest.raises(BlobStoreUnavailable) as told:
            await operation(container)
    shown = "".join(traceback.format_exception_only(told.value)) + repr(told.value.__cause__)
    assert told.value.__suppress_context__
    for secret in (SECRET, "127.0.0.1", "the-bucket", "the-prefix", "a/b"):
        assert secret not in shown


@contextmanager
def limited(kind: int, value: int) -> Iterator[Callable[[], None]]:
    """A limit of this process, until the block ends or the given function is called."""
    before = resource.getrlimit(kind)

    def lift() -> None:
        resource.setrlimit(kind, before)

    resource.setrlimit(kind, (value, before[1]))
    try:
        yield lift
    finally:
        lift()


def lowest_free_descriptor() -> int:
    free = os.dup(0)
    os.close(free)
    return free


async def test_a_folder_is_asked_again_when_its_error_may_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = BlobContainer.open(tmp_path.as_uri(), HASTY)
    await container.put_whole("a/b", CONTENT)
    slept = []
    for operation in OPERATIONS:
        with limited(resource.RLIMIT_NOFILE, lowest_free_descriptor()) as lift:

            async def until_then(seconds: float, lift: Callable[[], None] = lift) -> None:
                slept.append(seconds)
                lift()

            monkeypatch.setattr(errors.asyncio, "sleep", until_then)
            await operation(container)
        monkeypatch.undo()
        if operation is delete:  # needs no descriptor
            await container.put_whole("a/b", CONTENT)
    assert len(slept) == len(OPERATIONS) - 1


async def test_a_folder_that_cannot_take_a_blob_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(seconds: float) -> None:
        raise AssertionError("it was to be tried again")

    container = BlobContainer.open(tmp_path.as_uri(), HASTY)
    monkeypatch.setattr(errors.asyncio, "sleep", never)
    with (
        limited(resource.RLIMIT_FSIZE, len(CONTENT) - 1),
        pytest.raises(BlobStoreUnavailable, match="File too large"),
    ):
        await container.put_whole("a/b", CONTENT)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_waits_grow_from_one_second_to_ten_by_chance_up_to_half_more() -> None:
    assert BLOB_RETRIES == 3
    assert [BLOB_BACKOFF.delay(failures, 0.0) for failures in (0, 1, 2, 3, 9)] == [1, 2, 4, 8, 10]
    assert BLOB_BACKOFF.delay(0, 0.999) == pytest.approx(1.5, abs=0.001)
