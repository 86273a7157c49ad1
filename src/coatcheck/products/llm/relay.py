"""Relays a job to its synchronous caller: as a stream, or whole once it has ended.

The status of a response cannot be changed later, so its head is sent only when the job has output:
a job that fails before gets the status of its failure. A caller who would wait long gets the head
anyway, and a later failure is reported within the stream.

When a caller leaves, the job goes on, and a retry by their client may join it
(``caller_retries.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

import msgspec

from coatcheck.crash import crash_point
from coatcheck.domain.errors import ClientGone, CoatcheckError, Unauthenticated
from coatcheck.domain.ids import from_text, to_text
from coatcheck.domain.job import JobView
from coatcheck.domain.states import State
from coatcheck.http.problems import problem
from coatcheck.http.request import Request
from coatcheck.http.response import RawHeaders, Response, StreamResponse
from coatcheck.products.llm.answers import without_text
from coatcheck.products.llm.jobs import LlmContext, shown_error
from coatcheck.products.llm.openai.native import Untranslatable
from coatcheck.products.llm.output_stream import (
    Idle,
    OutputChunk,
    OutputDraining,
    OutputEnded,
    Piece,
    Restarted,
    follow,
)

Awaited = TypeVar("Awaited")

HELD_SECONDS_MAX: Final = 30 * 86_400.0
"""How long a caller who set no time is held: longer than any stays."""
RETRY_AFTER_SECONDS: Final = 2

FAILURES: Final = {
    "cancelled": HTTPStatus.CONFLICT,
    "image_unavailable": HTTPStatus.BAD_REQUEST,
    "invalid_request": HTTPStatus.BAD_REQUEST,
    "model_not_found": HTTPStatus.NOT_FOUND,
}
"""The status for a synchronous caller whose job failed, by the error's code; otherwise 502."""

NO_RETRY: Final = (b"x-should-retry", b"false")
"""Keeps OpenAI's clients from retrying automatically: the job has had its attempts, or goes on, and
each retry would make another job."""
_STREAM_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy that buffers would hold chunks back
)


class Framing(Protocol):
    """The format of one caller's stream."""

    media_type: bytes

    def output(self, seq: int | None, data: bytes) -> bytes:
        """The bytes for one object of the target. Called once for each, in order, from the first.

        Raises Untranslatable.
        """

    def restart(self) -> None:
        """Forget the objects so far: the next one is the first."""

    def idle(self) -> bytes:
        """The bytes that keep an idle connection open."""

    def error(self, status: HTTPStatus, code: str, message: str) -> bytes:
        """The bytes that end the stream with an error."""

    def end(self) -> bytes:
        """The bytes after the last object."""


class _LastObject(msgspec.Struct):
    done: bool = False


_decode_last: Final = msgspec.json.Decoder(_LastObject).decode


class Relay:
    """Relays llm jobs to synchronous callers."""

    def __init__(self, context: LlmContext) -> None:
        self._context = context

    async def stream(
        self, request: Request, job: UUID, framing: Framing, headers: RawHeaders, *, after: int = 0
    ) -> Response | StreamResponse:
        """The job's output after the chunk numbered ``after``, as it comes."""
        context = self._context
        # From the first chunk, even for a caller who has some: the translation of an object may
        # depend on those before it, and a later restart may have made theirs void.
        pieces = follow(
            context.engine,
            context.draining,
            request.principal.org,
            job,
            watching=partial(context.gate.watch, request),
        )
        relayed = _RelayedStream(context, request.principal.org, job, framing, after)
        try:
            first = await self._while_there(request, job, relayed.next_of(pieces))
            if isinstance(first, OutputEnded) and first.view.state is not State.COMPLETED:
                await pieces.aclose()
                return self.failed(request, first.view, headers)
            if isinstance(first, OutputDraining):
                await pieces.aclose()
                return await self.drained(request, job, headers)
        except Untranslatable as error:  # among the chunks that the caller already has
            await pieces.aclose()
            code, message = untranslatable(job, error)
            return problem(request, HTTPStatus.BAD_GATEWAY, code, message, headers=headers)
        except BaseException:
            await pieces.aclose()
            raise
        headers = [(b"content-type", framing.media_type), *_STREAM_HEADERS, *headers]
        why = _job_continues("The credential of this request is no longer valid", job)
        refused = framing.error(HTTPStatus.UNAUTHORIZED, Unauthenticated.code, why)
        return StreamResponse(HTTPStatus.OK, relayed.bodies(first, pieces), headers, refused)

    async def held(self, request: Request, job_id: str, seconds: float | None) -> JobView:
        """The job once it has ended, or the time is up, or this server drains. Raises ClientGone if
        the caller leaves."""
        if seconds is None:
            seconds = HELD_SECONDS_MAX
        held = self._context.jobs.wait_with_result(request, job_id, request.principal.org, seconds)
        return await self._while_there(request, from_text(job_id), held)

    async def _while_there(
        self, request: Request, job: UUID, awaited: Coroutine[Any, Any, Awaited]
    ) -> Awaited:
        """The awaited result. Raises ClientGone if the caller leaves before."""
        waiting = asyncio.create_task(awaited)
        leaving = asyncio.create_task(request.disconnected())
        try:
            await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                self._context.callers.caller_left(request.principal.org, job)
                raise ClientGone("The caller left before the job had any output.")
            return waiting.result()
        finally:
            for task in (waiting, leaving):
                task.cancel()
            await asyncio.gather(waiting, leaving, return_exceptions=True)

    def headers(self, job: UUID) -> RawHeaders:
        """The headers that lead from a response to its job."""
        job_id = to_text(job)
        return [job_id_header(job_id), *self._context.jobs.links(job_id).headers()]

    def failed(self, request: Request, view: JobView, headers: RawHeaders) -> Response:
        """The response to a caller whose job has failed."""
        status, code, message = _failure(view)
        return problem(request, status, code, message, headers=headers)

    async def drained(self, request: Request, job: UUID, headers: RawHeaders) -> Response:
        """The response to a caller when this server stops. Their client may retry at another
        server, if the retry will join the job."""
        joinable = await self._context.callers.detach_caller(request.principal.org, job)
        headers = headers if joinable else [*headers, NO_RETRY]
        return problem(
            request,
            HTTPStatus.SERVICE_UNAVAILABLE,
            "server_stopping",
            _job_continues("This server is about to stop", job),
            headers=[*headers, (b"retry-after", b"%d" % RETRY_AFTER_SECONDS)],
        )


def job_id_header(job_id: str) -> tuple[bytes, bytes]:
    return b"x-job-id", job_id.encode("ascii")


class _RelayedStream:
    """The state of one caller's stream."""

    def __init__(
        self, context: LlmContext, org: str, job: UUID, framing: Framing, after: int
    ) -> None:
        self._context = context
        self._org = org
        self._job = job
        self._framing = framing
        self._after = after
        self._has_sent = after > 0
        self._last = b"{}"

    async def next_of(self, pieces: AsyncGenerator[Piece, None]) -> Piece:
        """The next piece that is new to this caller."""
        async for piece in pieces:
            match piece:
                case OutputChunk() if piece.seq <= self._after:
                    self._last = piece.data
                    self._framing.output(piece.seq, piece.data)
                case Restarted() if piece.seq <= self._after or not self._has_sent:
                    self._last = b"{}"
                    self._framing.restart()
                case _:
                    return piece
        raise AssertionError("output has an end")

    async def bodies(
        self, piece: Piece, pieces: AsyncGenerator[Piece, None]
    ) -> AsyncGenerator[bytes, None]:
        """The bytes to send, from ``piece`` on. Closed before its end, the caller left."""
        has_ended = False
        try:
            async with aclosing(self._bodies(piece, pieces)) as bodies:
                async for body in bodies:
                    yield body
            has_ended = True
        finally:
            if not has_ended:
                self._context.callers.caller_left(self._org, self._job)

    async def _bodies(
        self, piece: Piece, pieces: AsyncGenerator[Piece, None]
    ) -> AsyncGenerator[bytes, None]:
        framing = self._framing
        async with aclosing(pieces):
            try:
                while True:
                    match piece:
                        case OutputChunk():
                            self._last, self._has_sent = piece.data, True
                            yield framing.output(piece.seq, piece.data)
                            crash_point("llm.stream_sent")
                        case Idle():
                            yield framing.idle()
                        case Restarted():
                            yield self._void(piece)
                            return
                        case OutputDraining():
                            why = _job_continues("This server is about to stop", self._job)
                            yield framing.error(
                                HTTPStatus.SERVICE_UNAVAILABLE, "server_stopping", why
                            )
                            return
                        case OutputEnded():
                            yield await self._end(piece.view)
                            return
                    piece = await self.next_of(pieces)
            except Untranslatable as error:
                yield framing.error(HTTPStatus.BAD_GATEWAY, *untranslatable(self._job, error))
            except CoatcheckError as error:
                # The database is unavailable, or the job's retention has ended meanwhile.
                why = _job_continues("The job cannot be read at the moment", self._job)
                yield framing.error(HTTPStatus.SERVICE_UNAVAILABLE, error.code, why)

    def _void(self, piece: Restarted) -> bytes:
        urls = self._context.jobs.links(to_text(self._job))
        return self._framing.error(
            HTTPStatus.BAD_GATEWAY,
            "output_restarted",
            f"The job {to_text(self._job)} had to start again (attempt {piece.attempt}): its "
            f"output so far is void. The job goes on: see {urls.poll} and {urls.events}.",
        )

    async def _end(self, view: JobView) -> bytes:
        if view.state is not State.COMPLETED:
            return self._framing.error(*_failure(view))
        if _decode_last(self._last).done:
            return self._framing.end()
        # The last object was too large to be a chunk.
        last = without_text(await self._context.jobs.answer(view))
        return self._framing.output(None, last) + self._framing.end()


def _failure(view: JobView) -> tuple[HTTPStatus, str, str]:
    error = shown_error(view)
    assert error is not None, "the job has failed"
    return FAILURES.get(error.code, HTTPStatus.BAD_GATEWAY), error.code, error.message


def untranslatable(job: UUID, error: Untranslatable) -> tuple[str, str]:
    """The code and the text for an answer that cannot be translated for the caller."""
    return error.code, f"{error.reason}; /jobs/{to_text(job)} has the original answer."


def _job_continues(what: str, job: UUID) -> str:
    return f"{what}; the job {to_text(job)} goes on: see /jobs/{to_text(job)}."
