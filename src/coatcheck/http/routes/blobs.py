"""Blobs by signed URLs of ours, where no store serves them itself: see ``blobs/signing.py``.

There is no credential but the URL.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

import msgspec

from coatcheck.blobs.container import BlobHead
from coatcheck.blobs.keys import upload_of
from coatcheck.blobs.signing import BLOBS_PATH, Grant
from coatcheck.core import Engine
from coatcheck.core.queries import uploads
from coatcheck.db.connection import Connection
from coatcheck.db.errors import retried
from coatcheck.domain.errors import NotFound, SignedUrlExpired, UploadAlreadyUsed
from coatcheck.domain.inputs import StagedUpload
from coatcheck.domain.limits import LIST_BYTES_MAX
from coatcheck.http.files import FILE_PARAMETERS, StoredFile, file_response, file_responses
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import LIST_SECONDS_MAX, Request
from coatcheck.http.response import Response, StreamResponse, json_response
from coatcheck.http.routing import Parameter, RequestBody, ResponseSpec, Route
from coatcheck.http.upload_limits import UploadRoom

_PATH: Final = BLOBS_PATH + "{token}"
_TAG: Final = "blobs"
_UNTYPED: Final = "application/octet-stream"
_TOKEN: Final = Parameter("token", "path", "What was signed: part of the URL that was given.")


class StoredBlobBody(msgspec.Struct, frozen=True):
    """The blob is there, whole."""

    bytes: int
    sha256: str


def routes(engine: Engine, db: Connection) -> list[Route]:
    """``/v1/blobs/{token}``: fetch and put."""
    room = UploadRoom()

    async def fetch(request: Request) -> Response | StreamResponse:
        grant = engine.signer.grants.read(request.params["token"], "GET", datetime.now(UTC))
        try:
            blob = await engine.blobs.head(grant.key)
        except FileNotFoundError:
            raise NotFound from None
        return file_response(request, engine.blobs, _file(grant, blob))

    async def put(request: Request) -> Response:
        grant = engine.signer.grants.read(request.params["token"], "PUT", datetime.now(UTC))

        async def unused() -> StagedUpload:
            return await _unused(db, grant)

        upload = await unused()
        async with room.entered(upload.org):
            body = request.pieces(grant.bytes_max or LIST_BYTES_MAX, LIST_SECONDS_MAX)
            stored = await engine.blobs.put(grant.key, _then(body, unused))
        return json_response(StoredBlobBody(stored.size, stored.sha256.hex()), HTTPStatus.CREATED)

    return [
        Route(
            methods=["GET"],
            path=_PATH,
            name="fetch_blob",
            summary="Fetch a blob by its signed URL.",
            description="Also answers HEAD. Takes one `Range`, `If-Range` and `If-None-Match`.",
            handler=fetch,
            parameters=[_TOKEN, *FILE_PARAMETERS],
            responses=[*file_responses("Changes with the blob."), *_REFUSALS],
            tag=_TAG,
        ),
        Route(
            methods=["PUT"],
            path=_PATH,
            name="put_blob",
            summary="Put a list to the signed URL of an upload.",
            description="The body as it is, of any type. Nothing is kept of one that breaks off; a "
            "second PUT replaces the first, until the upload is used.",
            handler=put,
            parameters=[_TOKEN],
            body=RequestBody(
                f"The list: {LIST_BYTES_MAX} bytes at most.",
                schema={"type": "string", "format": "binary"},
                media_type=_UNTYPED,
                required=False,
            ),
            responses=[
                ResponseSpec(HTTPStatus.CREATED, "It is stored.", StoredBlobBody),
                *_REFUSALS,
                ResponseSpec(
                    HTTPStatus.CONFLICT,
                    "The upload was used (`upload_already_used`).",
                    Problem,
                    MEDIA_TYPE,
                ),
                ResponseSpec(
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


def _file(grant: Grant, blob: BlobHead) -> StoredFile:
    etag = (blob.etag or "").removeprefix("W/").strip('"')
    return StoredFile(grant.key, blob.size, etag, blob.etag, grant.file_name, grant.media_type)


async def _unused(db: Connection, grant: Grant) -> StagedUpload:
    """Only an upload is put to, and only while its list is nobody's input yet."""
    upload_id = upload_of(grant.key)
    if upload_id is None:
        raise NotFound
    upload = await retried(lambda: uploads.find(db, upload_id))
    if upload is None:
        raise NotFound
    if upload.is_used:
        raise UploadAlreadyUsed("This upload was used; make another for another list.")
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


_REFUSALS: Final = [
    ResponseSpec(
        HTTPStatus.NOT_FOUND,
        "This URL was not signed here, or the blob is gone; which, is not said.",
        Problem,
        MEDIA_TYPE,
    ),
    ResponseSpec(HTTPStatus.GONE, "The URL has expired (`url_expired`).", Problem, MEDIA_TYPE),
    ResponseSpec(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "The blob store or the database is away.",
        Problem,
        MEDIA_TYPE,
        {"Retry-After": "Seconds to wait before asking again."},
    ),
]
