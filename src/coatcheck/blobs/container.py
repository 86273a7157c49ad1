"""A blob container named by a URL: a local folder, S3, Azure or GCS.

The schemes are ``file``, ``s3``, ``az``, ``abfs``, ``abfss`` and ``gs``. Credentials,
regions and endpoints come from the variables that each store's own tools read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, LocalStore, ObjectStore, S3Store, from_url

from coatcheck.blobs.disposition import attachment
from coatcheck.blobs.errors import (
    cannot_sign,
    explaining,
    explaining_a_write,
    retried,
    retried_stream,
)
from coatcheck.domain.errors import BlobStoreUnavailable, SettingsInvalid
from coatcheck.domain.retry import BLOB_BACKOFF, BLOB_RETRIES, Backoff

if TYPE_CHECKING:
    from obstore import Attributes, GetOptions, GetResult, ObjectMeta
    from obstore.store import ClientConfig, RetryConfig


_REQUEST: Final = timedelta(minutes=15)
_CONNECT: Final = timedelta(seconds=5)
_NO_RETRIES: Final[RetryConfig] = {"max_retries": 0}
_ENDPOINTS: Final = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_NEEDS: Final = {
    "az": "AZURE_STORAGE_ACCOUNT_NAME and a credential such as AZURE_STORAGE_ACCOUNT_KEY",
    "gs": "GOOGLE_SERVICE_ACCOUNT, the path of a readable key file, or an identity of the machine",
    "s3": "AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or an identity of the machine",
}


@dataclass(frozen=True, slots=True)
class BlobRetryPolicy:
    """Timeout and retries for calls to a blob store."""

    backoff: Backoff = BLOB_BACKOFF
    retries: int = BLOB_RETRIES
    answer: timedelta = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store with two handles: the one for deletions does not retry by itself.

    obstore retries idempotent requests. It treats a deletion as not idempotent, because stores
    take it as a POST, and does not retry one that timed out or was partly done. Ours are
    idempotent, so our own code retries them through this handle, and nothing else does.
    """

    store: ObjectStore
    deleting: ObjectStore
    folder: Path | None = None


def open_store(url: str, retry_policy: BlobRetryPolicy) -> OpenStore:
    """Open the store at ``url``. A local folder is created if it is missing."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        folder = Path(unquote(parts.path))
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        local = LocalStore(prefix=folder, automatic_cleanup=True)  # leaves no empty folder per job
        return OpenStore(local, local, folder)
    client_options = _client_options(_family(parts.scheme), retry_policy)
    try:
        return OpenStore(
            from_url(url, client_options=client_options, retry_config=_retries(retry_policy)),
            from_url(url, client_options=client_options, retry_config=_NO_RETRIES),
        )
    except BaseError:
        raise SettingsInvalid(
            "COATCHECK_BLOB_URL: the store cannot be set up from the environment. It needs "
            f"{_NEEDS[_family(parts.scheme)]}; see docs/how-to/blob-stores.md"
        ) from None  # obstore quotes the whole URL


def _family(scheme: str) -> str:
    return "az" if scheme.startswith("abfs") else scheme


def _client_options(family: str, retry_policy: BlobRetryPolicy) -> ClientConfig:
    """Short timeouts for a silent server, a long one for a large blob on a slow connection."""
    options: ClientConfig = {
        "connect_timeout": _CONNECT,
        "read_timeout": retry_policy.answer,
        "timeout": _REQUEST,
    }
    if any(os.environ.get(name, "").startswith("http://") for name in _ENDPOINTS.get(family, ())):
        options["allow_http"] = True  # the operator wrote http:// into the endpoint
    return options


def _retries(retry_policy: BlobRetryPolicy) -> RetryConfig:
    """Backoff for obstore's retries: the first wait is ``base``, each next one lies between that
    and three times the previous one, so that waits double on average."""
    attempts = retry_policy.retries + 1
    return {
        "max_retries": retry_policy.retries,
        "backoff": {
            "init_backoff": timedelta(seconds=retry_policy.backoff.base_seconds),
            "max_backoff": timedelta(seconds=retry_policy.backoff.cap_seconds),
            "base": 3,
        },
        # Long enough for every retry to happen even if each attempt has to time out.
        "retry_timeout": attempts
        * (retry_policy.answer + timedelta(seconds=retry_policy.backoff.cap_seconds)),
    }


def delete_unfinished(root: Path, prefix: str, limit: datetime | None) -> int:
    """Delete such files under ``prefix`` that are older than ``limit``, and emptied folders.
    Returns the number of deleted files.
    """
    deleted = 0
    for folder, folders, files in os.walk(root / prefix, topdown=False):
        for name in files:
            if "#" in name and _is_older(Path(folder, name), limit):
                Path(folder, name).unlink(missing_ok=True)
                _remove_while_empty(Path(folder), root)
                deleted += 1
        if not folders and not files and _is_older(Path(folder), limit):
            _remove_while_empty(Path(folder), root)
    return deleted


def _is_older(path: Path, limit: datetime | None) -> bool:
    try:
        written_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:  # finished or deleted in the meantime
        return False
    return limit is None or written_at < limit


def _remove_while_empty(folder: Path, root: Path) -> None:
    with contextlib.suppress(OSError):  # not empty or already gone: nothing left to do
        while folder != root:
            folder.rmdir()
            folder = folder.parent


Result = TypeVar("Result")
Source = bytes | Path | BinaryIO | AsyncIterator[bytes]

_CHUNK_BYTES: Final = 1024 * 1024
_PARTS_AT_A_TIME: Final = 2
"""Concurrent parts of a multipart upload, each of 5 MiB. One more is being filled meanwhile, so an
upload needs three parts of memory."""
_PAGE_KEYS: Final = 500
WINDOW_BYTES: Final = 64 * 1024 * 1024
"""How many bytes one GET request reads. A longer response could be cut off by a slow reader's
pauses or by the request timeout."""


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """The key, size and hash of a finished upload."""

    key: str
    size: int
    sha256: bytes


class BlobHead(NamedTuple):
    """The size and etag of a blob, without its bytes. ``etag`` has the store's own format."""

    size: int
    etag: str | None


class BlobContainer:
    """Puts, gets, lists and deletes blobs by key (see ``keys.py``).

    Every call is retried a few times on transient errors and then raises
    ``BlobStoreUnavailable``. Cloud stores retry single requests themselves;
    ``errors.py`` retries the rest, and everything on a local folder.
    """

    def __init__(self, opened: OpenStore, retry_policy: BlobRetryPolicy) -> None:
        self._store = opened.store
        self._deleting = opened.deleting
        self._folder = opened.folder
        self._retry_policy = retry_policy

    @classmethod
    def open(cls, url: str, retry_policy: BlobRetryPolicy | None = None) -> BlobContainer:
        """Open the container at ``url``. A local folder is created if it is missing.

        Raises ``SettingsInvalid`` if the store cannot be set up from the environment.
        """
        retry_policy = retry_policy or BlobRetryPolicy()
        return cls(open_store(url, retry_policy), retry_policy)

    async def put(
        self,
        key: str,
        source: Source,
        *,
        media_type: str | None = None,
        file_name: str | None = None,
    ) -> StoredBlob:
        """Store all of ``source``. Nothing is visible under ``key`` until the upload is complete.

        A cloud store sends ``media_type`` and ``file_name`` to whoever downloads the blob by a
        signed URL. A folder stores neither: there the URL itself carries them.
        """
        attributes = self._attributes(media_type, file_name)
        with explaining_a_write():
            if isinstance(source, bytes | Path):
                return await self._retried(lambda: self._put_stream(key, source, attributes))
            # An open file and a stream can be read only once.
            return await self._put_stream(key, source, attributes)

    async def _put_stream(
        self, key: str, source: Source, attributes: Attributes | None
    ) -> StoredBlob:
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
            await obstore.put_async(
                self._store,
                key,
                chunks(),
                attributes=attributes,
                max_concurrency=_PARTS_AT_A_TIME,
            )
        except Exception:
            if broken is not None:
                raise broken from None  # the source's own error, not the store's wrapper of it
            raise
        return StoredBlob(key, size, digest.digest())

    def _attributes(self, media_type: str | None, file_name: str | None) -> Attributes | None:
        if self._folder is not None:
            return None
        attributes: Attributes = {}
        if media_type is not None:
            attributes["Content-Type"] = media_type
        if file_name is not None:
            attributes["Content-Disposition"] = attachment(file_name)
        return attributes or None

    async def put_whole(self, key: str, content: bytes | bytearray) -> None:
        """Store ``content`` in one request: all of it or nothing."""
        with explaining_a_write():
            await self._retried(
                lambda: obstore.put_async(self._store, key, content, use_multipart=False)
            )

    async def get(self, key: str) -> bytes:
        """Read a whole blob. Raises FileNotFoundError."""

        async def whole() -> bytes:
            self._check_there()
            answer = await obstore.get_async(self._store, key)
            return bytes(await answer.bytes_async())

        with explaining():
            return await self._retried(whole)

    async def head(self, key: str) -> BlobHead:
        """Read the size of a blob, and the etag that tells versions of one key apart.

        Raises FileNotFoundError.
        """
        with explaining():
            self._check_there()
            meta = await self._retried(lambda: obstore.head_async(self._store, key))
        return BlobHead(meta["size"], meta["e_tag"])

    async def stream(
        self, key: str, start: int = 0, *, stop: int | None = None, etag: str | None = None
    ) -> AsyncIterator[bytes]:
        """Read a blob chunk by chunk, from byte ``start`` up to byte ``stop`` or the end.

        All chunks belong to one version of the blob: the one with this ``etag`` (see ``head``), if
        given. Raises FileNotFoundError, and BlobChanged if the blob was replaced meanwhile.
        """
        with explaining():
            self._check_there()
            answer: GetResult | None = None
            if start or stop is not None:
                size, found = await self.head(key)
                etag = etag or found
                stop = size if stop is None else min(stop, size)
            else:
                answer = await self._get(key, None, etag)
                etag, stop = etag or answer.meta["e_tag"], answer.meta["size"]
            at = start
            while at < stop:
                end = stop if self._folder is not None else min(stop, at + WINDOW_BYTES)
                if answer is None:
                    answer = await self._get(key, (at, end), etag)
                before = at
                async for chunk in answer.stream(min_chunk_size=_CHUNK_BYTES):
                    at += len(chunk)
                    yield bytes(chunk)
                    if at >= end:
                        break
                if at == before:
                    raise BlobStoreUnavailable("the blob store failed: it sent no bytes of a blob")
                answer = None

    async def _get(self, key: str, span: tuple[int, int] | None, etag: str | None) -> GetResult:
        options: GetOptions = {}
        if span is not None:
            options["range"] = span
        if etag is not None:
            options["if_match"] = etag
        return await self._retried(lambda: obstore.get_async(self._store, key, options=options))

    @property
    def upload_headers(self) -> dict[str, str]:
        """The headers that a PUT to a URL signed by the store must carry."""
        return {"x-ms-blob-type": "BlockBlob"} if isinstance(self._store, AzureStore) else {}

    async def signed_url(
        self, method: Literal["GET", "PUT"], key: str, life: timedelta
    ) -> str | None:
        """A URL signed by the store itself, usable without credentials.

        None if the store cannot sign: a folder cannot, nor can a store whose credential is itself
        a token that somebody else signed.
        """
        if not isinstance(self._store, AzureStore | GCSStore | S3Store):
            return None
        with explaining():
            try:
                return await obstore.sign_async(self._store, method, key, life)
            except BaseError as error:
                if cannot_sign(error):
                    return None
                raise

    async def delete(self, keys: list[str]) -> None:
        """Delete blobs. A missing blob counts as deleted."""
        if not keys:
            return
        try:
            await self._delete(keys)
        except FileNotFoundError:  # says nothing about the other keys
            for key in keys:
                with contextlib.suppress(FileNotFoundError):
                    await self._delete([key])

    async def _delete(self, keys: list[str]) -> None:
        with explaining():
            self._check_there()
            await retried(
                lambda: obstore.delete_async(self._deleting, keys),
                self._retry_policy.backoff,
                self._retry_policy.retries,
            )

    async def keys_under(self, prefix: str) -> AsyncIterator[list[str]]:
        """All keys under ``prefix``, page by page. After a retry some keys may come twice."""
        async for page in self._pages(prefix):
            yield [entry["path"] for entry in page]

    async def older_than(self, limit: datetime, prefix: str) -> AsyncIterator[list[str]]:
        """The keys under ``prefix`` last written before ``limit``, page by page."""
        async for page in self._pages(prefix):
            yield [entry["path"] for entry in page if entry["last_modified"] < limit]

    async def _pages(self, prefix: str) -> AsyncIterator[Sequence[ObjectMeta]]:
        async def pages() -> AsyncIterator[Sequence[ObjectMeta]]:
            async for page in obstore.list(self._store, prefix=prefix, chunk_size=_PAGE_KEYS):
                yield page

        with explaining():
            self._check_there()
            async for page in retried_stream(pages, self._retry_policy.backoff, self._retries):
                yield page

    async def drop_unfinished(self, limit: datetime | None, prefix: str) -> int:
        """Delete leftovers of interrupted uploads under ``prefix`` that are older than ``limit``.

        Only a local folder shows them. A cloud store hides unfinished uploads; its own lifecycle
        rule removes them.
        """
        if self._folder is None:
            return 0
        return await asyncio.to_thread(delete_unfinished, self._folder, prefix, limit)

    async def probe(self) -> None:
        """Write, read and delete a small blob. Raises if the container cannot be used."""
        key = f"_probe/{secrets.token_hex(8)}"  # unique: replicas probe at the same time
        await self.put_whole(key, b"probe")
        await self.get(key)
        await self.delete([key])

    def _check_there(self) -> None:
        """Raise BlobStoreUnavailable if the folder itself is missing, as after a lost mount.

        Without this check every blob in a missing folder would count as deleted.
        """
        if self._folder is not None and not self._folder.is_dir():
            raise BlobStoreUnavailable("the blob store's folder does not exist")

    async def _retried(self, operation: Callable[[], Awaitable[Result]]) -> Result:
        return await retried(operation, self._retry_policy.backoff, self._retries)

    @property
    def _retries(self) -> int:
        """How often to retry here what a cloud store already retries by itself."""
        return 0 if self._folder is None else self._retry_policy.retries


async def _chunks(source: Source) -> AsyncIterator[bytes]:
    if isinstance(source, bytes):
        for start in range(0, len(source), _CHUNK_BYTES):
            yield source[start : start + _CHUNK_BYTES]
    elif isinstance(source, Path):
        with source.open("rb") as file:
            async for chunk in _chunks(file):
                yield chunk
    elif isinstance(source, AsyncIterator):
        async for chunk in source:
            yield chunk
    else:
        while chunk := await asyncio.to_thread(source.read, _CHUNK_BYTES):
            yield chunk
