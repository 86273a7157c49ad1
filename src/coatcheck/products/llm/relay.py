"""Relays a job to the caller who waits for it: as it speaks, or whole once it has ended.

The status of an answer cannot be taken back, so its head is sent only when the job has said
something: a job that fails before is answered with the status that says so. A caller who would
wait long is sent the head all the same, and what goes wrong later is told within the stream.

A caller who leaves takes nothing with them: the job goes on, and a retry of their client may join
it (``caller_retries.py``).
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
from coatcheck.products.llm.context import LlmContext
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
from coatcheck.products.llm.presenter import shown_error

Awaited = TypeVar("Awaited")

HELD_SECONDS_MAX: Final = 30 * 86_400.0
"""How long a caller is held who set no time: longer than any of them stays."""
RETRY_AFTER_SECONDS: Final = 2

FAILURES: Final = {
    "cancelled": HTTPStatus.CONFLICT,
    "image_unavailable": HTTPStatus.BAD_REQUEST,
    "invalid_request": HTTPStatus.BAD_REQUEST,
    "model_not_found": HTTPStatus.NOT_FOUND,
}
"""What a caller who waited is answered when the job failed; else 502."""

LEAVE_IT: Final = (b"x-should-retry", b"false")
"""The job was tried as often as is worth while, or goes on: OpenAI's clients would make another of
their own accord, and a third."""
_STREAM_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy that collects pieces would hold them back
)


class Framing(Protocol):
    """How one caller's stream is written down."""

    media_type: bytes

    def output(self, seq: int | None, data: bytes) -> bytes:
        """One object of the target's, each exactly once and in their order, from the first on.

        Raises Untranslatable.
        """

    def begin_again(self) -> None:
        """Forget the objects so far: the next one is the first."""

    def idle(self) -> bytes:
        """What keeps a connection open over which nothing goes."""

    def error(self, status: HTTPStatus, code: str, message: str) -> bytes:
        """That the stream ends here, and why."""

    def end(self) -> bytes:
        """After the last object."""


class _LastObject(msgspec.Struct):
    done: bool = False


_decode_last: Final = msgspec.json.Decoder(_LastObject).decode


class Relay:
    """Relays jobs of this surface."""

    def __init__(self, context: LlmContext) -> None:
        self._context = context

    async def stream(
        self, request: Request, job: UUID, framing: Framing, headers: RawHeaders, *, after: int = 0
    ) -> Response | StreamResponse:
        """The job's output after the chunk numbered ``after``, as it comes."""
        context = self._context
        # From the first on, also for who has a part of it: what an object becomes may depend on
        # those before it, and whether theirs is void on what came after.
        pieces = follow(
            context.engine,
            context.draining,
            request.principal.org,
            job,
            watching=partial(context.gate.watch, request),
        )
        telling = _RelayedStart(context, request.principal.org, job, framing, after)
        try:
            first = await self._while_there(request, job, telling.next_of(pieces))
            if isinstance(first, OutputEnded) and first.view.state is not State.COMPLETED:
                await pieces.aclose()
                return self.failed(request, first.view, headers)
            if isinstance(first, OutputDraining):
                await pieces.aclose()
                return await self.drained(request, job, headers)
        except Untranslatable as error:  # what its caller says to have already
            await pieces.aclose()
            code, message = untranslatable(job, error)
            return problem(request, HTTPStatus.BAD_GATEWAY, code, message, headers=headers)
        except BaseException:
            await pieces.aclose()
            raise
        headers = [(b"content-type", framing.media_type), *_STREAM_HEADERS, *headers]
        why = _goes_on("The credential of this request does not count any more", job)
        refused = framing.error(HTTPStatus.UNAUTHORIZED, Unauthenticated.code, why)
        return StreamResponse(HTTPStatus.OK, telling.bodies(first, pieces), headers, refused)

    async def held(self, request: Request, job_id: str, seconds: float | None) -> JobView:
        """The job once it has ended, or the time is up, or this server drains. Raises ClientGone
        if its caller does not stay."""
        if seconds is None:
            seconds = HELD_SECONDS_MAX
        held = self._context.responses.held(request, job_id, request.principal.org, seconds)
        return await self._while_there(request, from_text(job_id), held)

    async def _while_there(
        self, request: Request, job: UUID, awaited: Coroutine[Any, Any, Awaited]
    ) -> Awaited:
        """What is waited for, for as long as the caller stays. Raises ClientGone if they do not."""
        waiting = asyncio.create_task(awaited)
        leaving = asyncio.create_task(request.disconnected())
        try:
            await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                self._context.callers.gone(request.principal.org, job)
                raise ClientGone("The caller left before the job had said anything.")
            return waiting.result()
        finally:
            for task in (waiting, leaving):
                task.cancel()
            await asyncio.gather(waiting, leaving, return_exceptions=True)

    def headers(self, job: UUID) -> RawHeaders:
        """What leads from an answer to its job."""
        job_id = to_text(job)
        return [job_id_header(job_id), *self._context.presenter.urls(job_id).headers()]

    def failed(self, request: Request, view: JobView, headers: RawHeaders) -> Response:
        """The answer to a caller whose job has failed."""
        status, code, message = _failure(view)
        return problem(request, status, code, message, headers=headers)

    async def drained(self, request: Request, job: UUID, headers: RawHeaders) -> Response:
        """The answer to a caller whom this server cannot keep any longer. Their client may try
        again elsewhere, if it joins the job then."""
        joinable = await self._context.callers.sent_away(request.principal.org, job)
        headers = headers if joinable else [*headers, LEAVE_IT]
        return problem(
            request,
            HTTPStatus.SERVICE_UNAVAILABLE,
            "server_stopping",
            _goes_on("This server is about to stop", job),
            headers=[*headers, (b"retry-after", b"%d" % RETRY_AFTER_SECONDS)],
        )


def job_id_header(job_id: str) -> tuple[bytes, bytes]:
    return b"x-job-id", job_id.encode("ascii")


class _RelayedStart:
    """One caller's stream, as far as it has come."""

    def __init__(
        self, context: LlmContext, org: str, job: UUID, framing: Framing, after: int
    ) -> None:
        self._context = context
        self._org = org
        self._job = job
        self._framing = framing
        self._after = after
        self._has_told = after > 0
        self._last = b"{}"

    async def next_of(self, pieces: AsyncGenerator[Piece, None]) -> Piece:
        """The next piece that means something to this caller."""
        async for piece in pieces:
            match piece:
                case OutputChunk() if piece.seq <= self._after:
                    self._last = piece.data
                    self._framing.output(piece.seq, piece.data)
                case Restarted() if piece.seq <= self._after or not self._has_told:
                    self._last = b"{}"
                    self._framing.begin_again()
                case _:
                    return piece
        raise AssertionError("what is followed has an end")

    async def bodies(
        self, piece: Piece, pieces: AsyncGenerator[Piece, None]
    ) -> AsyncGenerator[bytes, None]:
        """What to send, from ``piece`` on. Left before its end, its caller has gone."""
        has_ended = False
        try:
            async with aclosing(self._bodies(piece, pieces)) as bodies:
                async for body in bodies:
                    yield body
            has_ended = True
        finally:
            if not has_ended:
                self._context.callers.gone(self._org, self._job)

    async def _bodies(
        self, piece: Piece, pieces: AsyncGenerator[Piece, None]
    ) -> AsyncGenerator[bytes, None]:
        framing = self._framing
        async with aclosing(pieces):
            try:
                while True:
                    match piece:
                        case OutputChunk():
                            self._last, self._has_told = piece.data, True
                            yield framing.output(piece.seq, piece.data)
                            crash_point("llm.stream_sent")
                        case Idle():
                            yield framing.idle()
                        case Restarted():
                            yield self._void(piece)
                            return
                        case OutputDraining():
                            why = _goes_on("This server is about to stop", self._job)
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
                # The database is away, or the job's retention has ended meanwhile.
                why = _goes_on("The job cannot be read for the moment", self._job)
                yield framing.error(HTTPStatus.SERVICE_UNAVAILABLE, error.code, why)

    def _void(self, piece: Restarted) -> bytes:
        urls = self._context.presenter.urls(to_text(self._job))
        return self._framing.error(
            HTTPStatus.BAD_GATEWAY,
            "output_restarted",
            f"The job {to_text(self._job)} had to begin again (attempt {piece.attempt}): what came "
            f"so far is void. It goes on: see {urls.poll} and {urls.events}.",
        )

    async def _end(self, view: JobView) -> bytes:
        if view.state is not State.COMPLETED:
            return self._framing.error(*_failure(view))
        if _decode_last(self._last).done:
            return self._framing.end()
        # The last object was too large to be a chunk.
        last = without_text(await self._context.presenter.answer(view))
        return self._framing.output(None, last) + self._framing.end()


def _failure(view: JobView) -> tuple[HTTPStatus, str, str]:
    error = shown_error(view)
    assert error is not None, "the job has failed"
    return FAILURES.get(error.code, HTTPStatus.BAD_GATEWAY), error.code, error.message


def untranslatable(job: UUID, error: Untranslatable) -> tuple[str, str]:
    """The code and the text for an answer that cannot be said in the caller's words."""
    return error.code, f"{error.reason}; /jobs/{to_text(job)} has it as it came."


def _goes_on(what: str, job: UUID) -> str:
    return f"{what}; the job {to_text(job)} goes on: see /jobs/{to_text(job)}."
