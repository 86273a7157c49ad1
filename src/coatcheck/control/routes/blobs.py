"""Blobs by signed URLs of ours, where no store serves them itself: see ``blobs/signing.py``.

There is no credential but the URL. A stored file is never run as a page of ours: it is always an
attachment, of the type that was signed, and in a sandbox for a browser that shows it nevertheless.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

import msgspec

from coatcheck.blobs.container import BlobHead
from coatcheck.blobs.disposition import attachment
from coatcheck.blobs.grants import Grant
from coatcheck.blobs.keys import upload_of
from coatcheck.blobs.signing import BLOBS_PATH
from coatcheck.control.call import LIST_SECONDS_MAX, Call
from coatcheck.control.operations import Answer, Operation, Parameter, RequestBody
from coatcheck.control.problems import MEDIA_TYPE, Problem, problem
from coatcheck.control.ranges import (
    Span,
    Unsatisfiable,
    names_etag,
    requested_span,
    still_the_same,
)
from coatcheck.control.reply import RawHeaders, Reply, StreamReply, json_reply, raw_header
from coatcheck.control.upload_room import UploadRoom
from coatcheck.domain.errors import NotFound, SignedUrlExpired, UploadAlreadyUsed
from coatcheck.domain.limits import LIST_BYTES_MAX
from coatcheck.domain.uploads import StagedUpload
from coatcheck.engine import Engine
from coatcheck.store import uploads
from coatcheck.store.faults import retried
from coatcheck.store.line import Line

_PATH: Final = BLOBS_PATH + "{token}"
_TAG: Final = "blobs"
_UNTYPED: Final = "application/octet-stream"
_MEDIA_TYPE: Final = re.compile(r"[!-~]+/[ -~]*[!-~]")
_HARMLESS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; sandbox"),
    (b"cache-control", b"private, no-store"),
    (b"accept-ranges", b"bytes"),
)
_TOKEN: Final = Parameter("token", "path", "What was signed: part of the URL that was given.")


class Stored(msgspec.Struct, frozen=True):
    """The blob is there, whole."""

    bytes: int
    sha256: str


def operations(engine: Engine, line: Line) -> list[Operation]:
    """``/v1/blobs/{token}``: fetch and put."""
    room = UploadRoom()

    async def fetch(call: Call) -> Reply | StreamReply:
        grant = engine.signer.grants.read(call.params["token"], "GET", datetime.now(UTC))
        try:
            blob = await engine.blobs.head(grant.key)
        except FileNotFoundError:
            raise NotFound from None
        return _answer(call, engine, grant, blob)

    async def put(call: Call) -> Reply:
        grant = engine.signer.grants.read(call.params["token"], "PUT", datetime.now(UTC))

        async def unused() -> StagedUpload:
            return await _unused(line, grant)

        upload = await unused()
        async with room.entered(upload.org):
            body = call.pieces(grant.bytes_max or LIST_BYTES_MAX, LIST_SECONDS_MAX)
            stored = await engine.blobs.put(grant.key, _then(body, unused))
        return json_reply(Stored(stored.size, stored.sha256.hex()), HTTPStatus.CREATED)

    return [
        Operation(
            methods=["GET"],
            path=_PATH,
            name="fetch_blob",
            summary="Fetch a blob by its signed URL.",
            description="Also answers HEAD. Takes one `Range`, `If-Range` and `If-None-Match`.",
            handler=fetch,
            parameters=[
                _TOKEN,
                Parameter("Range", "header", "Which bytes: `bytes=FIRST-LAST`."),
                Parameter("If-Range", "header", "An ETag: give a range of no other blob."),
                Parameter("If-None-Match", "header", "ETags that are known already."),
            ],
            answers=[
                Answer(
                    HTTPStatus.OK,
                    "The blob, as an attachment of the type that was signed.",
                    media_type="*/*",
                    headers=_FETCHED,
                    schema={},
                ),
                Answer(
                    HTTPStatus.PARTIAL_CONTENT,
                    "The bytes that were asked for.",
                    media_type="*/*",
                    headers={**_FETCHED, "Content-Range": "Which bytes, and of how many."},
                    schema={},
                ),
                Answer(
                    HTTPStatus.NOT_MODIFIED,
                    "It is known already.",
                    headers={"ETag": _FETCHED["ETag"]},
                    empty=True,
                ),
                *_REFUSALS,
                Answer(
                    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
                    "The range begins after the end.",
                    Problem,
                    MEDIA_TYPE,
                    {"Content-Range": "How many bytes there are: `bytes */SIZE`."},
                ),
            ],
            tag=_TAG,
        ),
        Operation(
            methods=["PUT"],
            path=_PATH,
            name="put_blob",
            summary="Put a list to the signed URL of an upload.",
            description="The body as it is, of any type. Nothing is kept of one that breaks off; a "
            "second PUT replaces the first, until a batch has used it.",
            handler=put,
            parameters=[_TOKEN],
            body=RequestBody(
                f"The list: {LIST_BYTES_MAX} bytes at most.",
                schema={"type": "string", "format": "binary"},
                media_type=_UNTYPED,
                required=False,
            ),
            answers=[
                Answer(HTTPStatus.CREATED, "It is stored.", Stored),
                *_REFUSALS,
                Answer(
                    HTTPStatus.CONFLICT,
                    "A batch has used the upload (`upload_already_used`).",
                    Problem,
                    MEDIA_TYPE,
                ),
                Answer(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    "Too many uploads are under way (`rate_limited`).",
                    Problem,
                    MEDIA_TYPE,
                    {"Retry-After": "Seconds to wait before asking again."},
                ),
            ],
            tag=_TAG,
        ),
    ]


def _answer(call: Call, engine: Engine, grant: Grant, blob: BlobHead) -> Reply | StreamReply:
    etag = (blob.etag or "").removeprefix("W/").strip('"')
    tag = [raw_header("etag", f'"{etag}"')] if etag else []
    if etag and names_etag(call.header(b"if-none-match"), etag):
        return Reply(HTTPStatus.NOT_MODIFIED, headers=tag)
    span = None
    if call.method == "GET" and still_the_same(call.header(b"if-range"), etag):
        try:
            span = requested_span(call.header(b"range"), blob.size)
        except Unsatisfiable:
            return problem(
                call,
                HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
                "range_not_satisfiable",
                f"There are {blob.size} bytes.",
                headers=[raw_header("content-range", f"bytes */{blob.size}")],
            )
    headers: list[tuple[bytes, bytes]] = [*tag, *_described(grant), *_HARMLESS]
    status = HTTPStatus.OK
    if span is not None:
        status = HTTPStatus.PARTIAL_CONTENT
        headers.append(raw_header("content-range", span.content_range))
    else:
        span = Span(0, blob.size, blob.size)
    headers.append(raw_header("content-length", str(span.length)))
    # Of the blob whose size was told: one that takes its place meanwhile ends the answer.
    pieces = engine.blobs.stream(grant.key, span.start, stop=span.stop, etag=blob.etag)
    return StreamReply(status, pieces, headers)


def _described(grant: Grant) -> RawHeaders:
    typed = grant.media_type is not None and _MEDIA_TYPE.fullmatch(grant.media_type)
    media_type = grant.media_type if typed and grant.media_type is not None else _UNTYPED
    return [
        raw_header("content-type", media_type),
        raw_header("content-disposition", attachment(grant.file_name)),
    ]


async def _unused(line: Line, grant: Grant) -> StagedUpload:
    """Only an upload is put to, and only while its list is nobody's input yet."""
    upload_id = upload_of(grant.key)
    if upload_id is None:
        raise NotFound
    upload = await retried(lambda: uploads.find(line, upload_id))
    if upload is None:
        raise NotFound
    if upload.batch is not None:
        raise UploadAlreadyUsed("A batch has used this upload; make another for another list.")
    if upload.is_expired:
        raise SignedUrlExpired("The upload has expired; make another.")
    return upload


async def _then(
    pieces: AsyncIterator[bytes], check: Callable[[], Awaitable[object]]
) -> AsyncIterator[bytes]:
    """All pieces, and then a last look, before what they make becomes visible."""
    async for piece in pieces:
        yield piece
    await check()


_FETCHED: Final = {
    "ETag": "Changes with the blob.",
    "Accept-Ranges": "`bytes`.",
    "Content-Disposition": "`attachment`, with the file's name if it has one.",
}
_REFUSALS: Final = [
    Answer(
        HTTPStatus.NOT_FOUND,
        "This URL was not signed here, or the blob is gone; which, is not said.",
        Problem,
        MEDIA_TYPE,
    ),
    Answer(HTTPStatus.GONE, "The URL has expired (`url_expired`).", Problem, MEDIA_TYPE),
    Answer(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "The blob store or the database is away.",
        Problem,
        MEDIA_TYPE,
        {"Retry-After": "Seconds to wait before asking again."},
    ),
]
