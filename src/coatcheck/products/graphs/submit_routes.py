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
    check_directory,
    directory_in,
    read_end,
)
from coatcheck.archives.end_record import EndRecord
from coatcheck.archives.limits import ArchiveLimits
from coatcheck.blobs.pieces import StoredPieces, delete_pieces, store_pieces, stream_pieces
from coatcheck.core import Ticket
from coatcheck.crash import crash_point
from coatcheck.domain.errors import (
    BlobStoreUnavailable,
    CoatcheckError,
    IdempotencyKeyRequired,
    IdempotencyMismatch,
    InvalidParameter,
    OutcomeUnknown,
)
from coatcheck.domain.identity import Scope
from coatcheck.domain.ids import new_id
from coatcheck.domain.inputs import StoredInput
from coatcheck.domain.job import JobView
from coatcheck.domain.limits import ARCHIVE_BYTES_MAX
from coatcheck.http import multipart
from coatcheck.http.idempotency import read_idempotency_key
from coatcheck.http.job_responses import (
    IDEMPOTENCY_PARAMETERS,
    TICKET_HEADERS,
    WAIT_PARAMETERS,
    etag,
)
from coatcheck.http.prefer_header import Preferences, read_preferences
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Call
from coatcheck.http.response import RawHeaders, Reply, StreamReply
from coatcheck.http.routing import Answer, Operation, Parameter, RequestBody
from coatcheck.http.upload_limits import UploadRoom
from coatcheck.http.webhook_headers import WEBHOOK_PARAMETERS, WebhookUrls, read_webhook_urls
from coatcheck.products.graphs import extra
from coatcheck.products.graphs import schemas as words
from coatcheck.products.graphs.analysis_request import AnalysisRequest, encode_request
from coatcheck.products.graphs.context import Scene, stored_key
from coatcheck.products.graphs.errors import GraphsNotInstalled
from coatcheck.products.graphs.stream_tail import Tail
from coatcheck.settings.graph_operations import GRAPH_OPERATIONS, graph_endpoint

_log = logging.getLogger(__name__)

BASE: Final = "/v1/graphs"
PART: Final = "file"
UNITS: Final = b"x-usage-units"


class Submitting:
    """The submit routes."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        settings = scene.settings
        self._limits = ArchiveLimits.of(
            settings.archive_entries_max, settings.archive_unpacked_mb_max
        )
        self._room = UploadRoom()
        self._long_check = asyncio.Lock()
        self._can_analyse = extra.is_installed()

    async def submit(self, operation: str, call: Call) -> Reply | StreamReply:
        """POST /v1/graphs/{operation}: a known key is answered before the body is read."""
        scene, principal = self._scene, call.principal
        said = read_idempotency_key(call)
        if said is None:
            raise IdempotencyKeyRequired(
                "Send an Idempotency-Key, a UUID for instance: the same request with the same key "
                "is how a job is polled."
            )
        preferences = read_preferences(call)
        _wants_external_calls(call)  # a value that is none is refused before anything is stored
        await scene.gate.check_plan(principal)
        key = stored_key(principal, said)
        known = await scene.engine.find(key, org=principal.org)
        if known is not None:
            return await self._known(operation, call, known, preferences)
        if not self._can_analyse:
            raise GraphsNotInstalled(_NOT_INSTALLED)
        await scene.gate.check_new_work(principal)
        webhooks = await read_webhook_urls(call, scene.guard, call.principal.org)
        job = new_id()
        ticket: Ticket | None = None
        async with self._room.entered(principal.org) as has_waited:
            if has_waited:
                # Another request with this key may have got in meanwhile.
                known = await scene.engine.find(key, org=principal.org)
            if known is None:
                ticket = await self._take_in(operation, call, job, key, webhooks)
        if ticket is None:
            assert known is not None
            return await self._known(operation, call, known, preferences)
        view = await self._look(call, ticket.id, preferences)
        headers = [*preferences.headers, (UNITS, b"1" if ticket.created else b"0")]
        if not ticket.created:
            # Another request with this key was faster; what is the same is told by the content.
            same = not ticket.mismatch
            headers += self._replayed(same=same, preferences=preferences)
        return await scene.voice.reply(view, [(b"etag", etag(view)), *headers])

    # A key that is known

    async def _known(
        self, operation: str, call: Call, known: JobView, preferences: Preferences
    ) -> Reply | StreamReply:
        """The job as it is. Only who is strict pays for a look at the body, to compare it."""
        scene = self._scene
        same = known.endpoint == graph_endpoint(operation)
        if same and preferences.strict:
            same = await self._is_same(call, known)
        headers = [
            *preferences.headers,
            *self._replayed(same=same, preferences=preferences),
            (UNITS, b"0"),
        ]
        view = known
        if preferences.wait is not None and not known.terminal:
            view = await scene.answers.held(call, known.id, known.org, preferences.wait)
        return await scene.voice.reply(view, [(b"etag", etag(view)), *headers])

    async def _is_same(self, call: Call, known: JobView) -> bool:
        digest = hashlib.sha256()
        async for piece in multipart.file_part(call, PART, ARCHIVE_BYTES_MAX):
            digest.update(piece)
        record = await self._scene.engine.input_of(known.id, org=known.org)
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
        self, operation: str, call: Call, job: UUID, key: str, webhooks: WebhookUrls
    ) -> Ticket:
        """Store the archive, then the job. Whatever goes wrong, no archive stays without a job."""
        scene = self._scene
        blob_key = await scene.engine.new_input_key(job)
        began = time.monotonic()
        long: list[EndRecord] = []
        stored = await store_pieces(scene.blobs, blob_key, self._checked(call, long))
        crash_point("submit.blob_stored")
        for end in long:
            await self._check_long_directory(stored, end)
        try:
            # Its time to live is counted from its first byte.
            age = time.monotonic() - began
            ticket = await self._hand_in(operation, call, job, key, stored, age, webhooks)
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

    async def _checked(self, call: Call, long: list[EndRecord]) -> AsyncIterator[bytes]:
        """The archive's bytes. Raises at their end if its directory is not one to be trusted; one
        that is too long to be kept is added to ``long``, to be checked when it is stored."""
        tail = Tail(TAIL_BYTES_MAX)
        async for piece in tail.watch(multipart.file_part(call, PART, ARCHIVE_BYTES_MAX)):
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
                    self._scene.blobs, stored.key, stored.pieces, end.directory_at
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
        operation: str,
        call: Call,
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
        return await self._scene.engine.submit_with_input(
            graph_endpoint(operation),
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
            await delete_pieces(self._scene.blobs, stored.key)
        except BlobStoreUnavailable:
            _log.warning("an archive without a job is left to the sweeper")

    async def _look(self, call: Call, job_id: str, preferences: Preferences) -> JobView:
        scene, org = self._scene, call.principal.org
        if preferences.wait is None:
            return await scene.engine.get(job_id, org=org)
        return await scene.answers.held(call, job_id, org, preferences.wait)


def _feed(scan: DirectoryScan, piece: bytes) -> None:
    for _ in scan.feed(piece):
        pass


def operations(scene: Scene) -> list[Operation]:
    submitting = Submitting(scene)
    return [
        Operation(
            methods=("POST",),
            path=f"{BASE}/{operation}",
            name=f"{operation}_graph",
            summary=_SUMMARIES[operation],
            description="Send the same request with the same key again to poll: it is answered "
            "before its body is read.",
            handler=partial(submitting.submit, operation),
            access=Scope.SUBMIT,
            tag="graphs",
            parameters=(
                *IDEMPOTENCY_PARAMETERS,
                *WEBHOOK_PARAMETERS,
                *WAIT_PARAMETERS,
                *((_EXTERNAL_CALLS,) if operation in _WITH_CALLS else ()),
            ),
            body=RequestBody(
                "A form with one part `file`: a zip of source code, to 500 MB.",
                schema=_FORM,
                media_type=multipart.MEDIA_TYPE,
            ),
            answers=(_UNDER_WAY, ENDED, PAYMENT, _REJECTED, _UNAVAILABLE),
        )
        for operation in GRAPH_OPERATIONS
    ]


def _wants_external_calls(call: Call) -> bool:
    said = call.query.get(_EXTERNAL_CALLS.name, "false")
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
_UNDER_WAY: Final = Answer(
    HTTPStatus.ACCEPTED, "The job is safe, and has not ended.", words.Envelope, headers=_HEADERS
)
ENDED: Final = Answer(
    HTTPStatus.OK, "The job has completed, or failed.", words.Completed, headers=_HEADERS
)
PAYMENT: Final = Answer(
    HTTPStatus.PAYMENT_REQUIRED, "The organisation's plan is not active.", Problem, MEDIA_TYPE
)
_REJECTED: Final = Answer(
    HTTPStatus.UNPROCESSABLE_ENTITY,
    "The archive is not one to be trusted (`archive_rejected`), or the idempotency key is known "
    "with another request, and the caller was strict, or the webhook's URL may not be called.",
    Problem,
    MEDIA_TYPE,
)
_UNAVAILABLE: Final = Answer(
    HTTPStatus.NOT_IMPLEMENTED,
    "What analyses code is not installed where this server runs (`graphs_not_installed`). Jobs "
    "that are there already can be polled.",
    Problem,
    MEDIA_TYPE,
)
