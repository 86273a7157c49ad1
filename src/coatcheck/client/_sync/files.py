"""Uploads and downloads files piece by piece, and submits tasks: long lists are uploads.

A URL that the server has signed may be on another server, and is all the permission it needs: no
credential is sent there.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

import httpx2
import msgspec

from coatcheck.client._sync.exchange import Exchange
from coatcheck.client.addresses import Addresses, with_query
from coatcheck.client.answers import read
from coatcheck.client.batch_request import TaskRequest, query_options
from coatcheck.client.errors import ApiError, ConnectionFailed, UnexpectedAnswer
from coatcheck.client.request_headers import Headers
from coatcheck.client.task_lines import (
    BODY_BYTES_MAX,
    LIST_MEDIA_TYPE,
    LISTED_TASKS_MAX,
    PIECE_BYTES,
    at_once,
    listed,
    some_lines,
)
from coatcheck.encoding import encode

SILENCE_SECONDS_MAX: Final = 120.0
"""How long a store may take to save an upload."""

_PARTIAL_CONTENT: Final = 206


class Files:
    """Uploads and downloads files, with only a piece of them in memory."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def send(
        self,
        method: str,
        url: str,
        headers: Headers,
        file: IO[bytes],
        size: int,
        *,
        before: bytes = b"",
        after: bytes = b"",
        is_signed: bool = False,
    ) -> httpx2.Response:
        """Send the first ``size`` bytes of a file; after a failure, from the beginning again.

        ``before`` and ``after`` go around them, as in a form.
        """
        length = len(before) + size + len(after)
        headers = [*headers, (b"content-length", str(length).encode())]
        failures = 0
        while True:
            try:
                with self._exchange.open(
                    method,
                    url,
                    headers=headers,
                    content=_pieces(file, size, before, after),
                    silence=SILENCE_SECONDS_MAX,
                    is_signed=is_signed,
                ) as response:
                    response.read()
                    return response
            except (ApiError, ConnectionFailed) as error:
                failures += 1
                self._exchange.wait_to_retry(error, failures)

    def download(self, url: str, path: Path, size: int, sha256: str) -> Path:
        """Download from a signed URL to a file, which appears when it is complete and checked."""
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        file = at_once(unfinished.open, "xb")
        try:
            try:
                digest = self.fetch(url, file, size)
            finally:
                at_once(file.close)
            if digest != sha256:
                raise UnexpectedAnswer("the downloaded file does not match its checksum")
            at_once(unfinished.replace, path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        return path

    def fetch(self, url: str, file: IO[bytes], size: int) -> str:
        """Write ``size`` bytes from a signed URL to an empty file; returns its SHA-256 in hex.

        A broken connection is restored and the download resumes.
        """
        digest, received, failures = hashlib.sha256(), 0, 0
        while received < size:
            before = received
            try:
                with self._exchange.open(
                    "GET", url, headers=_from(received), silence=SILENCE_SECONDS_MAX, is_signed=True
                ) as response:
                    if received and response.status_code != _PARTIAL_CONTENT:
                        at_once(file.seek, 0)
                        at_once(file.truncate)
                        digest, received = hashlib.sha256(), 0
                    for piece in response.iter_raw(PIECE_BYTES):
                        at_once(file.write, piece)
                        digest.update(piece)
                        received += len(piece)
            except (ApiError, ConnectionFailed) as error:
                failures = 1 if received > before else failures + 1
                self._exchange.wait_to_retry(error, failures)
                continue
            if received != size:
                raise UnexpectedAnswer(f"received {received} bytes instead of {size}")
        return digest.hexdigest()


def _pieces(file: IO[bytes], size: int, before: bytes, after: bytes) -> Iterator[bytes]:
    at_once(file.seek, 0)
    if before:
        yield before
    while size > 0:
        piece = at_once(file.read, min(size, PIECE_BYTES))
        if not piece:
            raise ValueError("the file became shorter during the upload")
        size -= len(piece)
        yield piece
    if after:
        yield after


def _from(start: int) -> Headers:
    headers = [(b"accept-encoding", b"identity")]
    if start:
        headers.append((b"range", f"bytes={start}-".encode()))
    return headers


class _UploadTicket(msgspec.Struct, frozen=True):
    upload_id: str
    url: str
    method: str
    headers: Mapping[str, str] = {}


class TaskLists:
    """Sends requests with their tasks in the way that suits the number of tasks."""

    def __init__(self, exchange: Exchange, addresses: Addresses) -> None:
        self._exchange = exchange
        self._addresses = addresses
        self._files = Files(exchange)

    def submit(
        self,
        request: TaskRequest,
        tasks: Iterable[Any] | None,
        file: str | os.PathLike[str] | None,
        upload_id: str | None,
    ) -> httpx2.Response:
        """Send a request with the tasks of one source, or with none."""
        if sum(source is not None for source in (tasks, file, upload_id)) > 1:
            raise ValueError("give only one of tasks, file and upload_id")
        if tasks is not None:
            return self._with_tasks(request, iter(tasks))
        if file is not None:
            opened = at_once(Path(file).open, "rb")
            try:
                return self._with_list(request, opened)
            finally:
                at_once(opened.close)
        return self._with_fields(request, {} if upload_id is None else _staged(upload_id))

    def upload(self, path: str | os.PathLike[str]) -> str:
        """Upload a file of NDJSON lines; returns the upload's id."""
        file = at_once(Path(path).open, "rb")
        try:
            return self._stage(file, _size(file))
        finally:
            at_once(file.close)

    def _with_tasks(self, request: TaskRequest, tasks: Iterator[Any]) -> httpx2.Response:
        lines, is_all = some_lines(tasks, tasks_max=LISTED_TASKS_MAX, bytes_max=BODY_BYTES_MAX)
        if is_all:
            return self._with_fields(request, {"tasks": listed(lines)} if lines else {})
        # Into a file: its length must be known before it is sent, and a retry sends it from the
        # beginning.
        file: IO[bytes] = at_once(tempfile.TemporaryFile)
        try:
            while lines:
                at_once(file.writelines, [each + b"\n" for each in lines])
                lines, _ = some_lines(tasks, tasks_max=None, bytes_max=PIECE_BYTES)
            at_once(file.flush)
            return self._with_list(request, file)
        finally:
            at_once(file.close)

    def _with_list(self, request: TaskRequest, file: IO[bytes]) -> httpx2.Response:
        """Send a list as an upload, or as the body if the caller chose a key.

        An upload has a new id each time, so the server could not compare a repeated request.
        """
        size = _size(file)
        if size > BODY_BYTES_MAX and not request.has_own_key:
            return self._with_fields(request, _staged(self._stage(file, size)))
        url = with_query(request.url, query_options(request.options))
        headers = request.sent_headers(LIST_MEDIA_TYPE)
        return self._files.send("POST", url, headers, file, size)

    def _with_fields(self, request: TaskRequest, fields: Mapping[str, Any]) -> httpx2.Response:
        content = encode({**request.options, **fields})
        headers = request.sent_headers()
        return self._exchange.send("POST", request.url, headers=headers, content=content)

    def _stage(self, file: IO[bytes], size: int) -> str:
        upload = read(self._exchange.send("POST", self._addresses.uploads()), _UploadTicket)
        url = self._addresses.signed(upload.url)
        headers = [(name.encode("ascii"), value.encode()) for name, value in upload.headers.items()]
        self._files.send(upload.method, url, headers, file, size, is_signed=True)
        return upload.upload_id


def _staged(upload_id: str) -> dict[str, Any]:
    return {"source": {"upload_id": upload_id}}


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size
