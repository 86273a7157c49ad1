"""One container of blobs: a local folder, S3, Azure or GCS, by URL."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeVar

import obstore

from coatcheck.blobs.faults import explaining, explaining_a_write, retried, retried_stream
from coatcheck.blobs.opening import OpenStore, Patience, open_store
from coatcheck.blobs.unfinished import delete_unfinished
from coatcheck.domain.errors import BlobStoreUnavailable

if TYPE_CHECKING:
    from obstore import ObjectMeta

Result = TypeVar("Result")

_CHUNK_BYTES: Final = 1024 * 1024
_PAGE_KEYS: Final = 500


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """What a finished upload amounts to."""

    key: str
    size: int
    sha256: bytes


class BlobContainer:
    """Puts, gets, lists and deletes blobs by key (see ``keys.py``).

    Every call is repeated a few times while it fails in ways that may pass, and then raises
    ``BlobStoreUnavailable``. Cloud stores repeat single requests (``opening.py``); what they leave
    out, and all that concerns a folder, is repeated here (``faults.py``).
    """

    def __init__(self, opened: OpenStore, patience: Patience) -> None:
        self._store = opened.store
        self._deleting = opened.deleting
        self._folder = opened.folder
        self._patience = patience

    @classmethod
    def open(cls, url: str, patience: Patience | None = None) -> BlobContainer:
        """The container that a URL names. A local folder is made if it is missing.

        Raises ``SettingsInvalid`` if the store cannot be set up from the environment.
        """
        patience = patience or Patience()
        return cls(open_store(url, patience), patience)

    async def put(self, key: str, source: bytes | Path | BinaryIO) -> StoredBlob:
        """Store all of ``source``; nothing is visible under ``key`` before it is all there."""
        with explaining_a_write():
            if isinstance(source, bytes | Path):
                return await self._asked(lambda: self._put_stream(key, source))
            return await self._put_stream(key, source)  # an open file can be read only once

    async def _put_stream(self, key: str, source: bytes | Path | BinaryIO) -> StoredBlob:
        digest = hashlib.sha256()
        size = 0
        broken: Exception | None = None

        async def chunks() -> AsyncIterator[bytes]:
            nonlocal size, broken
            try:
                async for chunk in _chunks(source):
                    digest.update(chunk)
                    size += len(chunk)
                    yield chunk
            except Exception as error:
                broken = error
                raise

        try:
            await obstore.put_async(self._store, key, chunks())
        except Exception:
            if broken is not None:
                raise broken from None  # the source's own error, not the store's word for it
            raise
        return StoredBlob(key, size, digest.digest())

    async def put_whole(self, key: str, content: bytes | bytearray) -> None:
        """Store ``content`` by one request: it is there in full, or nothing of it is."""
        with explaining_a_write():
            await self._asked(
                lambda: obstore.put_async(self._store, key, content, use_multipart=False)
            )

    async def get(self, key: str) -> bytes:
        """The whole of a blob. Raises FileNotFoundError."""

        async def whole() -> bytes:
            self._check_there()
            answer = await obstore.get_async(self._store, key)
            return bytes(await answer.bytes_async())

        with explaining():
            return await self._asked(whole)

    async def stream(self, key: str) -> AsyncIterator[bytes]:
        """A blob chunk by chunk. Raises FileNotFoundError."""
        with explaining():
            self._check_there()
            answer = await self._asked(lambda: obstore.get_async(self._store, key))
            async for chunk in answer.stream(min_chunk_size=_CHUNK_BYTES):
                yield bytes(chunk)

    async def delete(self, keys: list[str]) -> None:
        """Delete blobs; one that is not there is as good as deleted."""
        if not keys:
            return
        try:
            await self._delete(keys)
        except FileNotFoundError:  # which says nothing about the others
            for key in keys:
                with contextlib.suppress(FileNotFoundError):
                    await self._delete([key])

    async def _delete(self, keys: list[str]) -> None:
        with explaining():
            self._check_there()
            await retried(
                lambda: obstore.delete_async(self._deleting, keys),
                self._patience.backoff,
                self._patience.retries,
            )

    async def keys_under(self, prefix: str) -> AsyncIterator[list[str]]:
        """All keys under ``prefix``, a page at a time. After a failure, some may come twice."""
        async for page in self._pages(prefix):
            yield [entry["path"] for entry in page]

    async def older_than(self, limit: datetime, prefix: str) -> AsyncIterator[list[str]]:
        """The keys under ``prefix`` last written before ``limit``, a page at a time."""
        async for page in self._pages(prefix):
            yield [entry["path"] for entry in page if entry["last_modified"] < limit]

    async def _pages(self, prefix: str) -> AsyncIterator[Sequence[ObjectMeta]]:
        async def pages() -> AsyncIterator[Sequence[ObjectMeta]]:
            async for page in obstore.list(self._store, prefix=prefix, chunk_size=_PAGE_KEYS):
                yield page

        with explaining():
            self._check_there()
            async for page in retried_stream(pages, self._patience.backoff, self._retries):
                yield page

    async def drop_unfinished(self, limit: datetime | None, prefix: str) -> int:
        """Delete what uploads that died half-way left under ``prefix``, if older than ``limit``.

        Only a local folder shows it (``unfinished.py``). A cloud store keeps unfinished uploads
        out of sight; its own lifecycle rule removes them.
        """
        if self._folder is None:
            return 0
        return await asyncio.to_thread(delete_unfinished, self._folder, prefix, limit)

    async def probe(self) -> None:
        """Write, read and delete a small blob; raises if the container cannot be used."""
        key = f"_probe/{secrets.token_hex(8)}"  # its own: replicas probe at the same time
        await self.put_whole(key, b"probe")
        await self.get(key)
        await self.delete([key])

    def _check_there(self) -> None:
        """Raise BlobStoreUnavailable if the folder itself is gone, as when its disk is.

        In a folder that is gone every blob is, and what is on that disk would pass for deleted.
        """
        if self._folder is not None and not self._folder.is_dir():
            raise BlobStoreUnavailable("the folder of the blob store is not there")

    async def _asked(self, operation: Callable[[], Awaitable[Result]]) -> Result:
        return await retried(operation, self._patience.backoff, self._retries)

    @property
    def _retries(self) -> int:
        """How often to repeat what a cloud store repeats by itself."""
        return 0 if self._folder is None else self._patience.retries


async def _chunks(source: bytes | Path | BinaryIO) -> AsyncIterator[bytes]:
    if isinstance(source, bytes):
        for start in range(0, len(source), _CHUNK_BYTES):
            yield source[start : start + _CHUNK_BYTES]
    elif isinstance(source, Path):
        with source.open("rb") as file:
            async for chunk in _chunks(file):
                yield chunk
    else:
        while chunk := await asyncio.to_thread(source.read, _CHUNK_BYTES):
            yield chunk
