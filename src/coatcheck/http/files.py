"""Serves blobs over HTTP: whole, as a range, or 304 if the caller has the blob already."""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.disposition import attachment
from coatcheck.http.problems import Refusal, problem
from coatcheck.http.request import Request
from coatcheck.http.response import SANDBOXED, Response, StreamResponse, raw_header
from coatcheck.http.routing import Parameter, ResponseSpec

_DIGITS_MAX: Final = 18
_RANGE: Final = re.compile(
    rf"bytes\s*=\s*(?P<first>\d{{0,{_DIGITS_MAX}}})-(?P<last>\d{{0,{_DIGITS_MAX}}})", re.IGNORECASE
)
_ETAG: Final = re.compile(r'(?:W/)?"([^"]*)"')


class Unsatisfiable(Exception):
    """The requested range begins after the end of the file."""


@dataclass(frozen=True, slots=True)
class Span:
    """A range of bytes: from ``start`` to before ``stop``, of ``size``."""

    start: int
    stop: int
    size: int

    @property
    def length(self) -> int:
        return self.stop - self.start

    @property
    def content_range(self) -> str:
        return f"bytes {self.start}-{self.stop - 1}/{self.size}"


def requested_span(range_header: str | None, size: int) -> Span | None:
    """The range that a Range header requests; None for the whole file. Raises Unsatisfiable.

    Multiple ranges and units other than bytes are ignored, as the standard allows: the response is
    the whole file.
    """
    asked = None if range_header is None else _RANGE.fullmatch(range_header.strip())
    if asked is None:
        return None
    first, last = asked["first"], asked["last"]
    if first:
        start, stop = int(first), int(last) + 1 if last else size
        if last and stop <= start:
            return None  # it ends before it begins: not a valid range
    elif last:
        start, stop = size - min(int(last), size), size
    else:
        return None
    if start >= size:
        raise Unsatisfiable
    return Span(start, min(stop, size), size)


def names_etag(header: str | None, etag: str) -> bool:
    """Whether an If-None-Match names ``etag`` (without its quotes), or is ``*``."""
    if header is None:
        return False
    return header.strip() == "*" or etag in _ETAG.findall(header)


def if_range_matches(if_range: str | None, etag: str) -> bool:
    """Whether If-Range allows a range of the present file: not if the caller has part of another
    version."""
    return if_range is None or if_range.strip() == f'"{etag}"'


_UNTYPED: Final = "application/octet-stream"
_MEDIA_TYPE: Final = re.compile(r"[!-~]+/[ -~]*[!-~]")
_HARMLESS: Final = (
    *SANDBOXED,
    (b"cache-control", b"private, no-store"),
    (b"accept-ranges", b"bytes"),
)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A blob that exists. ``etag`` is the one that callers see, without quotes, or empty.
    ``blob_etag`` is the blob store's: if the blob is replaced meanwhile, the response is cut."""

    key: str
    size: int
    etag: str
    blob_etag: str | None
    name: str | None
    media_type: str | None


def file_response(
    request: Request, blobs: BlobContainer, file: StoredFile
) -> Response | StreamResponse:
    """The response to a GET or a HEAD for the file."""
    tag = [raw_header("etag", f'"{file.etag}"')] if file.etag else []
    if file.etag and names_etag(request.header(b"if-none-match"), file.etag):
        return Response(HTTPStatus.NOT_MODIFIED, headers=tag)
    span, status = None, HTTPStatus.OK
    if request.method == "GET" and if_range_matches(request.header(b"if-range"), file.etag):
        try:
            span = requested_span(request.header(b"range"), file.size)
        except Unsatisfiable:
            return problem(
                request,
                *Refusal.RANGE_NOT_SATISFIABLE.value,
                f"The file has {file.size} bytes.",
                headers=[raw_header("content-range", f"bytes */{file.size}")],
            )
    headers: list[tuple[bytes, bytes]] = [
        *tag,
        raw_header("content-type", _sent_type(file.media_type)),
        raw_header("content-disposition", attachment(file.name)),
        *_HARMLESS,
    ]
    if span is not None:
        status = HTTPStatus.PARTIAL_CONTENT
        headers.append(raw_header("content-range", span.content_range))
    else:
        span = Span(0, file.size, file.size)
    headers.append(raw_header("content-length", str(span.length)))
    pieces = blobs.stream(file.key, span.start, stop=span.stop, etag=file.blob_etag)
    return StreamResponse(status, pieces, headers)


def _sent_type(media_type: str | None) -> str:
    """The media type, if it is valid in a header."""
    return media_type if media_type and _MEDIA_TYPE.fullmatch(media_type) else _UNTYPED


FILE_PARAMETERS: Final = (
    Parameter("Range", "header", "The bytes to send: `bytes=FIRST-LAST`."),
    Parameter("If-Range", "header", "An ETag: send a range only if the file still has it."),
    Parameter("If-None-Match", "header", "ETags that the caller has already."),
)


def file_responses(etag: str) -> list[ResponseSpec]:
    """The responses of a route that serves a file; ``etag`` describes its ETag."""
    fetched = {
        "ETag": etag,
        "Accept-Ranges": "`bytes`.",
        "Content-Disposition": "`attachment`, with the file's name if it has one.",
    }
    return [
        ResponseSpec(
            HTTPStatus.OK,
            "The file, as an attachment.",
            media_type="*/*",
            headers=fetched,
            schema={},
        ),
        ResponseSpec(
            HTTPStatus.PARTIAL_CONTENT,
            "The requested bytes.",
            media_type="*/*",
            headers={**fetched, "Content-Range": "The range, and the size of the file."},
            schema={},
        ),
        ResponseSpec(
            HTTPStatus.NOT_MODIFIED, "The caller has it.", headers={"ETag": etag}, empty=True
        ),
        ResponseSpec.problem(
            HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
            "The range begins after the end of the file.",
            {"Content-Range": "The size of the file: `bytes */SIZE`."},
        ),
    ]
