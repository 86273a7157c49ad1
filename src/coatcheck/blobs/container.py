"""One container of blobs: a local folder, S3, Azure or GCS, by URL."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import unquote, urlsplit

import obstore
from obstore.store import LocalStore, ObjectStore, from_url

_PIECE_BYTES: Final = 1024 * 1024
_RETRIES: Final = 3
_BACKOFF_FIRST: Final = timedelta(seconds=1)
_BACKOFF_MAX: Final = timedelta(seconds=10)
_RETRY_WINDOW: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """What a finished upload amounts to."""

    key: str
    size: int
    sha256: bytes


class BlobContainer:
    """Puts, gets, lists and deletes blobs by key (see ``keys.py``)."""

    def __init__(self, store: ObjectStore, folder: Path | None = None) -> None:
        self._store = store
        self._folder = folder

    @classmethod
    def open(cls, url: str) -> BlobContainer:
        """The container that a URL names. A local folder is made if it is missing."""
        parts = urlsplit(url)
        if parts.scheme == "file":
            folder = Path(unquote(parts.path))
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            return cls(LocalStore(prefix=folder), folder)
        return cls(
            from_url(
                url,
                retry_config={
                    "max_retries": _RETRIES,
                    "backoff": {
                        "init_backoff": _BACKOFF_FIRST,
                        "max_backoff": _BACKOFF_MAX,
                        "base": 2,
                    },
                    "retry_timeout": _RETRY_WINDOW,
                },
            )
        )

    async def put(self, key: str, source: bytes | Path | BinaryIO) -> StoredBlob:
        """Store all of ``source``; nothing is visible under ``key`` before it is all there."""
        digest = hashlib.sha256()
        size = 0

        async def pieces() -> AsyncIterator[bytes]:
            nonlocal size
            async for piece in _pieces(source):
                digest.update(piece)
                size += len(piece)
                yield piece

        await obstore.put_async(self._store, key, pieces())
        return StoredBlob(key, size, digest.digest())

    async def get(self, key: str) -> bytes:
        """The whole of a blob. Raises FileNotFoundError."""
        answer = await obstore.get_async(self._store, key)
        return bytes(await answer.bytes_async())

    async def stream(self, key: str) -> AsyncIterator[bytes]:
        """A blob piece by piece. Raises FileNotFoundError."""
        answer = await obstore.get_async(self._store, key)
        async for piece in answer.stream(min_chunk_size=_PIECE_BYTES):
            yield bytes(piece)

    async def delete(self, keys: list[str]) -> None:
        """Delete blobs; one that is not there is as good as deleted."""
        for key in keys:
            try:
                await obstore.delete_async(self._store, key)
            except FileNotFoundError:
                continue

    async def older_than(self, limit: datetime, prefix: str) -> AsyncIterator[list[str]]:
        """The keys under ``prefix`` last written before ``limit``, a page at a time."""
        async for page in obstore.list(self._store, prefix=prefix, chunk_size=500):
            yield [entry["path"] for entry in page if entry["last_modified"] < limit]

    async def drop_unfinished(self, limit: datetime, prefix: str) -> int:
        """Delete what uploads that died half-way left under ``prefix``, if older than ``limit``.

        Only a local folder shows it, as files named ``<key>#<number>`` that no listing returns. A
        cloud store keeps unfinished uploads out of sight; its own lifecycle rule removes them.
        """
        if self._folder is None:
            return 0
        return await asyncio.to_thread(_delete_parts, self._folder / prefix, limit)

    async def probe(self) -> None:
        """Write, read and delete a small blob; raises if the container cannot be used."""
        key = f"_probe/{secrets.token_hex(8)}"  # its own: replicas probe at the same time
        await obstore.put_async(self._store, key, b"probe")
        await self.get(key)
        await self.delete([key])


def _delete_parts(folder: Path, limit: datetime) -> int:
    deleted = 0
    for part in folder.rglob("*#*"):
        if datetime.fromtimestamp(part.stat().st_mtime, UTC) < limit:
            part.unlink(missing_ok=True)
            deleted += 1
    return deleted


async def _pieces(source: bytes | Path | BinaryIO) -> AsyncIterator[bytes]:
    if isinstance(source, bytes):
        for start in range(0, len(source), _PIECE_BYTES):
            yield source[start : start + _PIECE_BYTES]
    elif isinstance(source, Path):
        with source.open("rb") as file:
            async for piece in _pieces(file):
                yield piece
    else:
        while piece := await asyncio.to_thread(source.read, _PIECE_BYTES):
            yield piece
