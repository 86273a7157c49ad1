"""Routes that submit archives. The same request with the same idempotency key polls the job."""

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
from coatcheck.domain.bounds import Bound
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
from coatcheck.http.job_resource import IDEMPOTENCY_PARAMETERS, PLAN_INACTIVE
from coatcheck.http.parameters import (
    WEBHOOK_PARAMETERS,
    Preferences,
    WebhookUrls,
    read_preferences,
    read_webhook_urls,
)
from coatcheck.http.request import Request
from coatcheck.http.response import RawHeaders, Response, StreamResponse
from coatcheck.http.routing import Parameter, RequestBody, ResponseSpec, Route
from coatcheck.http.upload_limits import UploadSlots
from coatcheck.http.watching import WAIT_PARAMETERS
from coatcheck.products.graphs import extra, schemas
from coatcheck.products.graphs.analysis_request import AnalysisRequest, encode_request
from coatcheck.products.graphs.jobs import API_VERSION, ENDED, HEADERS, NO_UNITS, UNITS, GraphsJobs
from coatcheck.settings.parsers import GRAPH_OPERATIONS, graph_endpoint

_log = logging.getLogger(__name__)


class GraphsNotInstalled(NotInstalled):
    """The package that analyses code is not installed. The message says what to install."""

    code = "graphs_not_installed"


class StreamTail:
    """Passes pieces through and keeps their last ``bytes_max`` bytes.

    A zip has its directory at its end. With the tail, an archive can be checked as soon as its last
    byte has arrived, without reading any of it again.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        # One buffer: a caller may send single bytes, and a list of them would need many times the
        # memory.
        self._kept = bytearray()
        self.size = 0
        """The number of bytes that have passed."""

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


BASE: Final = "/v1/graphs"
PART: Final = "file"
Bound(
    "archive",
    of="entries of an archive, and their unpacked size in MiB; archives with a directory of more "
    f"than {TAIL_BYTES_MAX // 1024**2} MiB that a process checks at a time",
    over="process",
    value="1 such check",
    response="422 `archive_rejected`; the next check waits",
    settings=["archive_entries_max", "archive_unpacked_mb_max"],
)


class GraphSubmitRoutes:
    """The submit routes."""

    def __init__(self, jobs: GraphsJobs) -> None:
        self._jobs = jobs
        settings = jobs.settings
        self._limits = ArchiveLimits.of(
            settings.archive_entries_max, settings.archive_unpacked_mb_max
        )
        self._room = UploadSlots(settings.processes)
        self._long_check = asyncio.Lock()
        self._can_analyse = extra.is_installed()

    async def submit(self, route: str, request: Request) -> Response | StreamResponse:
        """POST /v1/graphs/{operation}: answers a known key before it reads the body."""
        jobs, principal = self._jobs, request.principal
        key = jobs.key(request)
        if key is None:
            raise IdempotencyKeyRequired(
                "Send an Idempotency-Key, for example a UUID. To poll the job, send the same "
                "request with the same key again."
            )
        preferences = read_preferences(request)
        _read_external_calls(request)  # refuses an invalid value before anything is stored
        await jobs.gate.check_plan(principal)
        known = await jobs.engine.find(key, org=principal.org)
        if known is not None:
            return await self._known(route, request, known, preferences)
        if not self._can_analyse:
            raise GraphsNotInstalled(_NOT_INSTALLED)
        await jobs.gate.check_new_work(principal)
        webhooks = await read_webhook_urls(request, jobs.server.receivers, principal.org)
        job = new_id()
        ticket: Ticket | None = None
        async with self._room.slot(principal.org) as has_waited:
            if has_waited:
                # Another request with this key may have been accepted meanwhile.
                known = await jobs.engine.find(key, org=principal.org)
            if known is None:
                ticket = await self._store_and_submit(route, request, job, key, webhooks)
        if ticket is None:
            assert known is not None
            return await self._known(route, request, known, preferences)
        view = await self._look(request, ticket.id, preferences)
        if ticket.created:
            return await self._shown(view, preferences, (UNITS, b"1"))
        # Another request with this key was faster; the content says whether it was the same.
        same = not ticket.mismatch
        replayed = self._replayed(same=same, preferences=preferences)
        return await self._shown(view, preferences, NO_UNITS, *replayed)

    # A key that is known

    async def _known(
        self, route: str, request: Request, known: JobView, preferences: Preferences
    ) -> Response | StreamResponse:
        """The job in its current state. The body is read and compared only on strict handling."""
        same = known.endpoint == graph_endpoint(route)
        if same and preferences.strict:
            same = await self._is_same(request, known)
        replayed = self._replayed(same=same, preferences=preferences)
        view = known
        if preferences.wait is not None and not known.terminal:
            view = await self._jobs.wait(request, known.id, known.org, preferences.wait)
        return await self._shown(view, preferences, NO_UNITS, *replayed)

    async def _shown(
        self, view: JobView, preferences: Preferences, *headers: tuple[bytes, bytes]
    ) -> Response | StreamResponse:
        jobs = self._jobs
        given = [(b"etag", jobs.etag(view)), API_VERSION, *preferences.headers, *headers]
        if view.terminal:
            jobs.has_ended(view)
            return await jobs.response(view, HTTPStatus.OK, given)
        seconds = await jobs.retry_after(view)
        given.append((b"retry-after", b"%d" % seconds))
        return await jobs.response(view, HTTPStatus.ACCEPTED, given, seconds)

    async def _is_same(self, request: Request, known: JobView) -> bool:
        digest = hashlib.sha256()
        async for piece in bodies.file_part(request, PART, ARCHIVE_BYTES_MAX):
            digest.update(piece)
        record = await self._jobs.engine.input_of(known.id, org=known.org)
        return record is not None and record.sha256 == digest.digest()

    @staticmethod
    def _replayed(*, same: bool, preferences: Preferences) -> RawHeaders:
        headers = [(b"idempotent-replayed", b"true")]
        if not same:
            if preferences.strict:
                raise IdempotencyMismatch(
                    "The idempotency key was already used with another operation or archive."
                )
            headers.append((b"idempotency-mismatch", b"true"))
        return headers

    # A key that is new

    async def _store_and_submit(
        self, route: str, request: Request, job: UUID, key: str, webhooks: WebhookUrls
    ) -> Ticket:
        """Store the archive, then the job. In every failure, no archive stays without a job."""
        blob_key = await self._jobs.engine.new_input_key(job)
        began = time.monotonic()
        long: list[EndRecord] = []
        stored = await store_pieces(self._jobs.engine.blobs, blob_key, self._checked(request, long))
        crash_point("submit.blob_stored")
        for end in long:
            await self._check_long_directory(stored, end)
        try:
            # The time to live counts from the archive's first byte.
            age = time.monotonic() - began
            ticket = await self._submit_job(route, request, job, key, stored, age, webhooks)
        except OutcomeUnknown:
            # The job may exist. If it does not, the sweeper finds the archive without a job.
            raise
        except CoatcheckError:
            await self._drop(stored)
            raise
        if not ticket.created:
            crash_point("submit.loser_before_delete")
            await self._drop(stored)
        return ticket

    async def _checked(self, request: Request, long: list[EndRecord]) -> AsyncIterator[bytes]:
        """The archive's bytes. Raises at their end if the archive's directory is not valid.

        A directory that is too long to be kept in memory is added to ``long``, and is checked once
        the archive is stored.
        """
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
            # With thousands of files this takes a while; a thread keeps the server responsive.
            await asyncio.to_thread(check_directory, directory, size, end, self._limits)

    async def _check_long_directory(self, stored: StoredPieces, end: EndRecord) -> None:
        """Check a directory from the stored archive, piece by piece; delete the archive if it is
        not valid.

        One check runs at a time: each takes seconds of a core, and some hundred bytes per entry.
        """
        try:
            async with self._long_check:
                scan = DirectoryScan(stored.size, end, self._limits)
                left = end.directory_ends_at - end.directory_at
                async for piece in stream_pieces(
                    self._jobs.engine.blobs, stored.key, stored.pieces, end.directory_at
                ):
                    await asyncio.to_thread(_feed, scan, piece[:left])
                    left -= len(piece)
                    if left <= 0:
                        break
                await asyncio.to_thread(scan.finish)
        except FileNotFoundError as error:
            raise BlobStoreUnavailable("a piece of the archive is missing") from error
        except BaseException:
            await asyncio.shield(self._drop(stored))
            raise

    async def _submit_job(
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
            external_calls=_read_external_calls(call),
        )
        return await self._jobs.engine.submit_with_input(
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
        """Delete an archive that has no job. If that fails, the sweeper deletes it."""
        try:
            await delete_pieces(self._jobs.engine.blobs, stored.key)
        except BlobStoreUnavailable:
            _log.warning("an archive without a job is left to the sweeper")

    async def _look(self, request: Request, job_id: str, preferences: Preferences) -> JobView:
        org = request.principal.org
        if preferences.wait is None:
            return await self._jobs.read(job_id, org)
        return await self._jobs.wait(request, job_id, org, preferences.wait)


def _feed(scan: DirectoryScan, piece: bytes) -> None:
    for _ in scan.feed(piece):
        pass


def routes(jobs: GraphsJobs) -> list[Route]:
    submitting = GraphSubmitRoutes(jobs)
    return [
        Route(
            methods=("POST",),
            path=f"{BASE}/{route}",
            name=f"{route}_graph",
            summary=_SUMMARIES[route],
            description="To poll the job, send the same request with the same key again: the "
            "server answers before it reads the body.",
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
                "A form with one part `file`: a zip of source code, at most 500 MB.",
                schema=_FORM,
                media_type=bodies.MEDIA_TYPE,
            ),
            responses=(_UNDER_WAY, ENDED, PLAN_INACTIVE, _REJECTED, _UNAVAILABLE),
        )
        for route in GRAPH_OPERATIONS
    ]


def _read_external_calls(request: Request) -> bool:
    given = request.query.get(_EXTERNAL_CALLS.name, "false")
    if given not in ("true", "false"):
        raise InvalidParameter(_EXTERNAL_CALLS.name, "must be true or false")
    return given == "true"


_EXTERNAL_CALLS: Final = Parameter(
    "externalCalls",
    "query",
    "Whether the graph includes calls to code that is not in the archive.",
    {"type": "boolean", "default": False},
)
_WITH_CALLS: Final = frozenset({"call", "supermodel"})
_NOT_INSTALLED: Final = (
    "This server cannot analyse code: the operator has to install the extra `graphs` where the "
    f"server and its workers run ({extra.HOW_TO_INSTALL}) and restart them."
)
_SUMMARIES: Final = {
    "dependency": "Graph the imports: between files, and of external modules.",
    "call": "Graph the calls between functions.",
    "domain": "Divide the code into domains, and assign files, functions and classes to them.",
    "parse": "Graph the files, classes, functions and types.",
    "supermodel": "Combine all graphs in one.",
}
_FORM: Final = {
    "type": "object",
    "properties": {PART: {"type": "string", "contentMediaType": "application/zip"}},
    "required": [PART],
    "additionalProperties": False,
}
_UNDER_WAY: Final = ResponseSpec(
    HTTPStatus.ACCEPTED,
    "The job is stored, and has not ended.",
    schemas.GraphJobBody,
    headers=HEADERS,
)
_REJECTED: Final = ResponseSpec.problem(
    HTTPStatus.UNPROCESSABLE_ENTITY,
    "The archive is not valid (`archive_rejected`); or the idempotency key was used with another "
    "request, and the caller asked for strict handling; or the webhook's URL may not be called.",
)
_UNAVAILABLE: Final = ResponseSpec.problem(
    HTTPStatus.NOT_IMPLEMENTED,
    "The server has no code analyser installed (`graphs_not_installed`). Jobs that exist already "
    "can be polled.",
)
