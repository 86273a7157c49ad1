"""The routes of signed URLs, for blob stores that cannot sign URLs: see ``blobs/signing.py``.

The URL is the only credential.
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
from coatcheck.domain.errors import NotFound, SignedUrlExpired, UploadAlreadyUsed
from coatcheck.domain.inputs import StagedUpload
from coatcheck.domain.limits import LIST_BYTES_MAX
from coatcheck.http.files import FILE_PARAMETERS, StoredFile, file_response, file_responses
from coatcheck.http.request import LIST_SECONDS_MAX, Request
from coatcheck.http.response import Response, StreamResponse, json_response
from coatcheck.http.routing import Parameter, RequestBody, ResponseSpec, Route
from coatcheck.http.upload_limits import UploadSlots

_PATH: Final = BLOBS_PATH + "{token}"
_TAG: Final = "blobs"
_UNTYPED: Final = "application/octet-stream"
_TOKEN: Final = Parameter("token", "path", "The signed part of the URL.")


class StoredBlobBody(msgspec.Struct, frozen=True):
    """The blob is stored."""

    bytes: int
    sha256: str


def routes(engine: Engine, db: Connection, *, processes: int) -> list[Route]:
    """``/v1/blobs/{token}``: fetch and put, on one of so many processes of a server."""
    room = UploadSlots(processes)

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
        async with room.slot(upload.org):
            body = request.pieces(grant.bytes_max or LIST_BYTES_MAX, LIST_SECONDS_MAX)
            stored = await engine.blobs.put(grant.key, _then(body, unused))
        return json_response(StoredBlobBody(stored.size, stored.sha256.hex()), HTTPStatus.CREATED)

    return [
        Route(
            methods=["GET"],
            path=_PATH,
            name="fetch_blob",
            summary="Fetch a blob by its signed URL.",
            description="Also answers HEAD. Supports one `Range`, `If-Range` and `If-None-Match`.",
            handler=fetch,
            parameters=[_TOKEN, *FILE_PARAMETERS],
            responses=[*file_responses("Changes with the blob."), *_REFUSALS],
            tag=_TAG,
        ),
        Route(
            methods=["PUT"],
            path=_PATH,
            name="put_blob",
            summary="Upload a list to the signed URL of an upload.",
            description="The body may have any type. An incomplete body is not stored. A second "
            "PUT replaces the first, until the upload is used.",
            handler=put,
            parameters=[_TOKEN],
            body=RequestBody(
                f"The list, at most {LIST_BYTES_MAX} bytes.",
                schema={"type": "string", "format": "binary"},
                media_type=_UNTYPED,
                required=False,
            ),
            responses=[
                ResponseSpec(HTTPStatus.CREATED, "The list is stored.", StoredBlobBody),
                *_REFUSALS,
                ResponseSpec.problem(
                    HTTPStatus.CONFLICT, "The upload was already used (`upload_already_used`)."
                ),
                ResponseSpec.problem(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    "Too many uploads are in progress (`rate_limited`).",
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
    """The upload of a grant. Raises unless it exists and its list is not a batch's input yet."""
    upload_id = upload_of(grant.key)
    if upload_id is None:
        raise NotFound
    upload = await uploads.find(db, upload_id)
    if upload is None:
        raise NotFound
    if upload.is_used:
        raise UploadAlreadyUsed("This upload was already used; create another for another list.")
    if upload.is_expired:
        raise SignedUrlExpired("The upload has expired; create another.")
    return upload


async def _then(
    pieces: AsyncIterator[bytes], check: Callable[[], Awaitable[object]]
) -> AsyncIterator[bytes]:
    """All pieces, and then a last check before the blob becomes visible."""
    async for piece in pieces:
        yield piece
    await check()


_REFUSALS: Final = [
    ResponseSpec.problem(
        HTTPStatus.NOT_FOUND,
        "The signature is not valid, or the blob was deleted; the response does not say which.",
    ),
    ResponseSpec.problem(HTTPStatus.GONE, "The URL has expired (`url_expired`)."),
    ResponseSpec.problem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "The blob store or the database is unavailable.",
        {"Retry-After": "Seconds to wait before asking again."},
    ),
]
