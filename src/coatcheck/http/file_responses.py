"""Blobs as HTTP answers: whole or a part of them, and only if they are not known already.

A stored file is never run as a page of ours: it is always an attachment, of the type that it was
stored or signed with, and in a sandbox for a browser that shows it nevertheless.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.disposition import attachment
from coatcheck.http.problems import MEDIA_TYPE, Problem, problem
from coatcheck.http.ranges import Span, Unsatisfiable, names_etag, requested_span, still_the_same
from coatcheck.http.request import Call
from coatcheck.http.response import SANDBOXED, Reply, StreamReply, raw_header
from coatcheck.http.routing import Answer, Parameter

_UNTYPED: Final = "application/octet-stream"
_MEDIA_TYPE: Final = re.compile(r"[!-~]+/[ -~]*[!-~]")
_HARMLESS: Final = (
    *SANDBOXED,
    (b"cache-control", b"private, no-store"),
    (b"accept-ranges", b"bytes"),
)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A blob that is there. ``etag`` is what callers know it by, without quotes, or empty;
    ``blob_etag`` is the store's own: a blob that takes its place meanwhile ends the answer."""

    key: str
    size: int
    etag: str
    blob_etag: str | None
    name: str | None
    media_type: str | None


def file_reply(call: Call, blobs: BlobContainer, file: StoredFile) -> Reply | StreamReply:
    """What a GET or a HEAD for the file is answered with."""
    tag = [raw_header("etag", f'"{file.etag}"')] if file.etag else []
    if file.etag and names_etag(call.header(b"if-none-match"), file.etag):
        return Reply(HTTPStatus.NOT_MODIFIED, headers=tag)
    span, status = None, HTTPStatus.OK
    if call.method == "GET" and still_the_same(call.header(b"if-range"), file.etag):
        try:
            span = requested_span(call.header(b"range"), file.size)
        except Unsatisfiable:
            return problem(
                call,
                HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
                "range_not_satisfiable",
                f"There are {file.size} bytes.",
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
    return StreamReply(status, pieces, headers)


def _sent_type(media_type: str | None) -> str:
    """The type, if a header can say it."""
    return media_type if media_type and _MEDIA_TYPE.fullmatch(media_type) else _UNTYPED


FILE_PARAMETERS: Final = (
    Parameter("Range", "header", "Which bytes: `bytes=FIRST-LAST`."),
    Parameter("If-Range", "header", "An ETag: give a range of no other file."),
    Parameter("If-None-Match", "header", "ETags that are known already."),
)


def file_answers(etag: str) -> list[Answer]:
    """What such a route answers with; ``etag`` says what its ETag is."""
    fetched = {
        "ETag": etag,
        "Accept-Ranges": "`bytes`.",
        "Content-Disposition": "`attachment`, with the file's name if it has one.",
    }
    return [
        Answer(
            HTTPStatus.OK,
            "The file, as an attachment.",
            media_type="*/*",
            headers=fetched,
            schema={},
        ),
        Answer(
            HTTPStatus.PARTIAL_CONTENT,
            "The bytes that were asked for.",
            media_type="*/*",
            headers={**fetched, "Content-Range": "Which bytes, and of how many."},
            schema={},
        ),
        Answer(HTTPStatus.NOT_MODIFIED, "It is known already.", headers={"ETag": etag}, empty=True),
        Answer(
            HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
            "The range begins after the end.",
            Problem,
            MEDIA_TYPE,
            {"Content-Range": "How many bytes there are: `bytes */SIZE`."},
        ),
    ]
