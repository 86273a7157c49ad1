"""Handing an archive in; and polling for it, which is handing it in again."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator
from functools import partial
from http import HTTPStatus
from typing import Final
from uuid import UUID

from coatcheck.archives.directory import (
    TAIL_BYTES_MAX,
    DirectoryScan,
    EndRecord,
    check_directory,
    directory_in,
    read_end,
)
from coatcheck.archives.model import ArchiveLimits
from coatcheck.blobs.pieces import StoredPieces, delete_pieces, store_pieces, stream_pieces
from coatcheck.core import Ticket
from coatcheck.crash import crash_point
from coatcheck.domain.errors import (
    BlobStoreUnavailable,
    CoatcheckError,
    IdempotencyKeyRequired,
    IdempotencyMismatch,
    InvalidParameter,
    NotInstalled,
    OutcomeUnknown,
)
from coatcheck.domain.ids import new_id
from coatcheck.domain.inputs import StoredInput
from coatcheck.domain.job import JobView
from coatcheck.domain.limits import ARCHIVE_BYTES_MAX
from coatcheck.domain.tenants import Scope
from coatcheck.http import bodies
from coatcheck.http.job_responses import (
    IDEMPOTENCY_PARAMETERS,
    TICKET_HEADERS,
    WAIT_PARAMETERS,
    etag,
)
from coatcheck.http.parameters import (
    WEBHOOK_PARAMETERS,
    Preferences,
    WebhookUrls,
    read_idempotency_key,
    read_preferences,
    read_webhook_urls,
)
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import RawHeaders, Response, StreamResponse
from coatcheck.http.routing import Parameter, RequestBody, ResponseSpec, Route
from coatcheck.http.upload_limits import UploadRoom
from coatcheck.products.graphs import extra, schemas
from coatcheck.products.graphs.analysis_request import AnalysisRequest, encode_request
from coatcheck.products.graphs.context import GraphsContext, stored_key
from coatcheck.settings.graph_operations import GRAPH_OPERATIONS, graph_endpoint


class GraphsNotInstalled(NotInstalled):
    """The package that analyses code is not installed. Its text says what to install."""

    code = "graphs_not_installed"


class StreamTail:
    """Passes pieces on and keeps their last ``bytes_max`` bytes.

    A zip has its directory at its end: with it, an archive is judged as soon as its last byte has
    come, without reading any of it again.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        # One run of bytes: a caller may send them one by one, and each as an object of its own
        # would need many times the memory.
        self._kept = bytearray()
        self.size = 0
        """How many bytes have passed."""

    async def watch(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for piece in pieces:
            self.size += len(piece)
            self._keep(piece)
            yield piece

    @property
    def kept(self) -> bytes:
        return bytes(self._kept[-self._bytes_max :])

    def _keep(self, piece: bytes) -> None:
        self._kept += piece
        if len(self._kept) >= 2 * self._bytes_max:
            del self._kept[: -self._bytes_max]


_log = logging.getLogger(__name__)

BASE: Final = "/v1/graphs"
PART: Final = "file"
UNITS: Final = b"x-usage-units"


class GraphSubmitRoutes:
    """The submit routes."""

    def __init__(self, context: GraphsContext) -> None:
        self._context = context
        settings = context.settings
        self._limits = ArchiveLimits.of(
            settings.archive_entries_max, settings.archive_unpacked_mb_max
        )
        self._room = UploadRoom()
        self._long_check = asyncio.Lock()
        self._can_analyse = extra.is_installed()

    async def submit(self, route: str, request: Request) -> Response | StreamResponse:
        """POST /v1/graphs/{operation}: a known key is answered before the body is read."""
        context, principal = self._context, request.principal
        said = read_idempotency_key(request)
        if said is None:
            raise IdempotencyKeyRequired(
                "Send an Idempotency-Key, a UUID for instance: the same request with the same key "
                "is how a job is polled."
            )
        preferences = read_preferences(request)
        _wants_external_calls(request)  # a value that is none is refused before anything is stored
        await context.gate.check_plan(principal)
        key = stored_key(principal, said)
        known = await context.engine.find(key, org=principal.org)
        if known is not None:
            return await self._known(route, request, known, preferences)
        if not self._can_analyse:
            raise GraphsNotInstalled(_NOT_INSTALLED)
        await context.gate.check_new_work(principal)
        webhooks = await read_webhook_urls(request, context.guard, request.principal.org)
        job = new_id()
        ticket: Ticket | None = None
        async with self._room.entered(principal.org) as has_waited:
            if has_waited:
                # Another request with this key may have got in meanwhile.
                known = await context.engine.find(key, org=principal.org)
            if known is None:
                ticket = await self._take_in(route, request, job, key, webhooks)
        if ticket is None:
            assert known is not None
            return await self._known(route, request, known, preferences)
        view = await self._look(request, ticket.id, preferences)
        headers = [*preferences.headers, (UNITS, b"1" if ticket.created else b"0")]
        if not ticket.created:
            # Another request with this key was faster; what is the same is told by the content.
            same = not ticket.mismatch
            headers += self._replayed(same=same, preferences=preferences)
        return await context.presenter.response(view, [(b"etag", etag(view)), *headers])

    # A key that is known

    async def _known(
        self, route: str, request: Request, known: JobView, preferences: Preferences
    ) -> Response | StreamResponse:
        """The job as it is. Only who is strict pays for a look at the body, to compare it."""
        context = self._context
        same = known.endpoint == graph_endpoint(route)
        if same and preferences.strict:
            same = await self._is_same(request, known)
        headers = [
            *preferences.headers,
            *self._replayed(same=same, preferences=preferences),
            (UNITS, b"0"),
        ]
        view = known
        if preferences.wait is not None and not known.terminal:
            view = await context.responses.held(request, known.id, known.org, preferences.wait)
        return await context.presenter.response(view, [(b"etag", etag(view)), *headers])

    async def _is_same(self, request: Request, known: JobView) -> bool:
        digest = hashlib.sha256()
        async for piece in bodies.file_part(request, PART, ARCHIVE_BYTES_MAX):
            digest.update(piece)
        record = await self._context.engine.input_of(known.id, org=known.org)
        return record is not None and record.sha256 == digest.digest()

    @staticmethod
    def _replayed(*, same: bool, preferences: Preferences) -> RawHeaders:
        headers = [(b"idempotent-replayed", b"true")]
        if not same:
            if preferences.strict:
                raise IdempotencyMismatch(
                    "The idempotency key is known, and came with another operation or archive then."
                )
            headers.append((b"idempotency-mismatch", b"true"))
        return headers

    # A key that is new

    async def _take_in(
        self, route: str, request: Request, job: UUID, key: str, webhooks: WebhookUrls
    ) -> Ticket:
        """Store the archive, then the job. Whatever goes wrong, no archive stays without a job."""
        context = self._context
        blob_key = await context.engine.new_input_key(job)
        began = time.monotonic()
        long: list[EndRecord] = []
        stored = await store_pieces(context.blobs, blob_key, self._checked(request, long))
        crash_point("submit.blob_stored")
        for end in long:
            await self._check_long_directory(stored, end)
        try:
            # Its time to live is counted from its first byte.
            age = time.monotonic() - began
            ticket = await self._hand_in(route, request, job, key, stored, age, webhooks)
        except OutcomeUnknown:
            # The job may be there. If it is not, the sweeper finds an archive without one.
            raise
        except CoatcheckError:
            await self._drop(stored)
            raise
        if not ticket.created:
            crash_point("submit.loser_before_delete")
            await self._drop(stored)
        return ticket

    async def _checked(self, request: Request, long: list[EndRecord]) -> AsyncIterator[bytes]:
        """The archive's bytes. Raises at their end if its directory is not one to be trusted; one
        that is too long to be kept is added to ``long``, to be checked when it is stored."""
        tail = StreamTail(TAIL_BYTES_MAX)
        async for piece in tail.watch(bodies.file_part(request, PART, ARCHIVE_BYTES_MAX)):
            crash_point("submit.uploading")
            yield piece
        kept, size = tail.kept, tail.size
        end = read_end(kept, size, self._limits)
        directory = directory_in(kept, size, end)
        if directory is None:
            long.append(end)
        else:
            # Of thousands of files it takes a while, in which others are to be answered.
            await asyncio.to_thread(check_directory, directory, size, end, self._limits)

    async def _check_long_directory(self, stored: StoredPieces, end: EndRecord) -> None:
        """Check a directory from what was stored, piece by piece; drop the archive if it is bad.

        One at a time: each takes seconds of a core, and some hundred bytes for each entry.
        """
        try:
            async with self._long_check:
                scan = DirectoryScan(stored.size, end, self._limits)
                left = end.directory_ends_at - end.directory_at
                async for piece in stream_pieces(
                    self._context.blobs, stored.key, stored.pieces, end.directory_at
                ):
                    await asyncio.to_thread(_feed, scan, piece[:left])
                    left -= len(piece)
                    if left <= 0:
                        break
                await asyncio.to_thread(scan.finish)
        except FileNotFoundError as error:
            raise BlobStoreUnavailable("a piece of the archive is gone") from error
        except BaseException:
            await asyncio.shield(self._drop(stored))
            raise

    async def _hand_in(
        self,
        route: str,
        call: Request,
        job: UUID,
        key: str,
        stored: StoredPieces,
        age_seconds: float,
        webhooks: WebhookUrls,
    ) -> Ticket:
        principal = call.principal
        request = AnalysisRequest(
            stored.key,
            stored.pieces,
            stored.size,
            stored.sha256.hex(),
            external_calls=_wants_external_calls(call),
        )
        return await self._context.engine.submit_with_input(
            graph_endpoint(route),
            encode_request(request),
            StoredInput(stored.key, stored.size, stored.pieces, stored.sha256, age_seconds),
            job_id=job,
            org=principal.org,
            owner=principal.owner,
            idempotency_key=key,
            request_id=call.request_id,
            **webhooks._asdict(),
        )

    async def _drop(self, stored: StoredPieces) -> None:
        """Delete an archive that has no job. If that fails, the sweeper will."""
        try:
            await delete_pieces(self._context.blobs, stored.key)
        except BlobStoreUnavailable:
            _log.warning("an archive without a job is left to the sweeper")

    async def _look(self, request: Request, job_id: str, preferences: Preferences) -> JobView:
        context, org = self._context, request.principal.org
        if preferences.wait is None:
            return await context.engine.get(job_id, org=org)
        return await context.responses.held(request, job_id, org, preferences.wait)


def _feed(scan: DirectoryScan, piece: bytes) -> None:
    for _ in scan.feed(piece):
        pass


def routes(context: GraphsContext) -> list[Route]:
    submitting = GraphSubmitRoutes(context)
    return [
        Route(
            methods=("POST",),
            path=f"{BASE}/{route}",
            name=f"{route}_graph",
            summary=_SUMMARIES[route],
            description="Send the same request with the same key again to poll: it is answered "
            "before its body is read.",
            handler=partial(submitting.submit, route),
            access=Scope.SUBMIT,
            tag="graphs",
            parameters=(
                *IDEMPOTENCY_PARAMETERS,
                *WEBHOOK_PARAMETERS,
                *WAIT_PARAMETERS,
                *((_EXTERNAL_CALLS,) if route in _WITH_CALLS else ()),
            ),
            body=RequestBody(
                "A form with one part `file`: a zip of source code, to 500 MB.",
                schema=_FORM,
                media_type=bodies.MEDIA_TYPE,
            ),
            responses=(_UNDER_WAY, ENDED, PAYMENT, _REJECTED, _UNAVAILABLE),
        )
        for route in GRAPH_OPERATIONS
    ]


def _wants_external_calls(request: Request) -> bool:
    said = request.query.get(_EXTERNAL_CALLS.name, "false")
    if said not in ("true", "false"):
        raise InvalidParameter(_EXTERNAL_CALLS.name, "is neither true nor false")
    return said == "true"


_EXTERNAL_CALLS: Final = Parameter(
    "externalCalls",
    "query",
    "Whether calls of what is not in the archive are in the graph, too.",
    {"type": "boolean", "default": False},
)
_WITH_CALLS: Final = frozenset({"call", "supermodel"})
_NOT_INSTALLED: Final = (
    "This server cannot analyse code: the operator has to install the extra `graphs` where the "
    f"server and its workers run ({extra.HOW_TO_INSTALL}) and restart them."
)
_SUMMARIES: Final = {
    "dependency": "Which files import which, and which external modules.",
    "call": "Which functions call which.",
    "domain": "What parts the code falls into, and what belongs to each.",
    "parse": "Files, classes, functions and types.",
    "supermodel": "All of it in one graph.",
}
_FORM: Final = {
    "type": "object",
    "properties": {PART: {"type": "string", "contentMediaType": "application/zip"}},
    "required": [PART],
    "additionalProperties": False,
}
_HEADERS: Final = TICKET_HEADERS | {
    "X-API-Version": "The version of this API.",
    "Warning": "Names the fields of the query that are not known here, and were ignored.",
    "X-Usage-Units": "What this request was metered as: 1 for new work, 0 for a poll.",
}
_UNDER_WAY: Final = ResponseSpec(
    HTTPStatus.ACCEPTED,
    "The job is safe, and has not ended.",
    schemas.GraphJobBody,
    headers=_HEADERS,
)
ENDED: Final = ResponseSpec(
    HTTPStatus.OK, "The job has completed, or failed.", schemas.GraphCompleted, headers=_HEADERS
)
PAYMENT: Final = ResponseSpec(
    HTTPStatus.PAYMENT_REQUIRED, "The organisation's plan is not active.", Problem, MEDIA_TYPE
)
_REJECTED: Final = ResponseSpec(
    HTTPStatus.UNPROCESSABLE_ENTITY,
    "The archive is not one to be trusted (`archive_rejected`), or the idempotency key is known "
    "with another request, and the caller was strict, or the webhook's URL may not be called.",
    Problem,
    MEDIA_TYPE,
)
_UNAVAILABLE: Final = ResponseSpec(
    HTTPStatus.NOT_IMPLEMENTED,
    "What analyses code is not installed where this server runs (`graphs_not_installed`). Jobs "
    "that are there already can be polled.",
    Problem,
    MEDIA_TYPE,
)
