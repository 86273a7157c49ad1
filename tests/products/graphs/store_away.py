"""A blob store that goes away, and comes back when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from coatcheck.blobs import BlobRetryPolicy
from coatcheck.domain.retry import Backoff
from tests.blobs.stores import BlobStore
from tests.blobs.unsteady_proxy import UnsteadyProxy, hanging_up

ENDPOINTS = {"s3": "AWS_ENDPOINT_URL", "azure": "AZURITE_BLOB_STORAGE_URL"}
_SOON = Backoff(base_seconds=0.001, cap_seconds=0.01, jitter=0.5)


@dataclass(frozen=True)
class Switch:
    """Whether the store is there. Only what was opened while it was can tell the difference."""

    leave: Callable[[], None]
    come_back: Callable[[], None]


@contextlib.asynccontextmanager
async def switchable(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Switch]:
    """From here on, containers of this process are opened on a store that can go away.

    They ask as often as ever while it is away, but do not wait for seconds in between.
    """
    _ask_again_soon(monkeypatch)
    if store.kind == "folder":
        yield _folder(Path(unquote(urlsplit(store.url).path)))
        return
    endpoint = ENDPOINTS[store.kind]
    async with UnsteadyProxy(store.environment[endpoint], hanging_up, times=0).running() as proxy:
        monkeypatch.setenv(endpoint, proxy.url)
        yield _server(proxy)


@contextlib.asynccontextmanager
async def failing_for(
    spoilt: Callable[[str], bool], store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[UnsteadyProxy]:
    """As ``switchable``, for a server that fails for good, but only for requests whose first line
    is ``spoilt``."""
    _ask_again_soon(monkeypatch)
    endpoint = ENDPOINTS[store.kind]
    proxy = UnsteadyProxy(store.environment[endpoint], hanging_up, times=sys.maxsize)

    async def spoil(writer: asyncio.StreamWriter, request: bytes) -> None:
        if spoilt(request.partition(b"\r\n")[0].decode()):
            await hanging_up(writer, request)
            return
        writer.write(await proxy.forwarded(request))
        await writer.drain()

    proxy.spoil = spoil
    async with proxy.running():
        monkeypatch.setenv(endpoint, proxy.url)
        yield proxy


def _ask_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "coatcheck.blobs.container.BlobRetryPolicy", lambda: BlobRetryPolicy(backoff=_SOON)
    )


def _folder(folder: Path) -> Switch:
    """A file lies where the folder was: nobody can use it, not even root."""
    aside = folder.with_name("aside")

    def leave() -> None:
        folder.rename(aside)
        folder.touch()

    def come_back() -> None:
        folder.unlink()
        aside.rename(folder)

    return Switch(leave, come_back)


def _server(proxy: UnsteadyProxy) -> Switch:
    def leave() -> None:
        proxy.times = sys.maxsize

    def come_back() -> None:
        proxy.times = 0

    return Switch(leave, come_back)
