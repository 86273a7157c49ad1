"""Responses with a large result: readers share one copy, and all copies have a memory budget.

A result may have 16 MiB, and its readers decide how long they take. With a copy for each, a hundred
slow readers would cost the memory of a hundred results. So the body of such a response is made
once, and kept while somebody reads it. It is sent in slices, each when the reader has room for it.
The memory of all bodies is bounded (``memory_budget.py``). So is the memory for encoding them,
because only one is encoded at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from typing import Final, NamedTuple
from uuid import UUID

from coatcheck.core import Engine
from coatcheck.http.memory_budget import ANSWER_WAIT_SECONDS_MAX, ByteBudget, Reservation
from coatcheck.http.response import JSON, SLICE_BYTES_MAX, RawHeaders, StreamResponse

_ENVELOPE_BYTES: Final = 16 * 1024
"""Reserved for the rest of the body besides the result, until its size is known."""

Encode = Callable[[bytes], Awaitable[bytes]]
"""Makes the body of a response from the result."""


class LeftOutResult(NamedTuple):
    """A result that was left out of a job's view because of its size."""

    org: str
    job: UUID
    size: int


class LargeResponses:
    """Makes responses with results that are too long to be read with their jobs."""

    def __init__(self, engine: Engine, budget: ByteBudget) -> None:
        self._engine = engine
        self._budget = budget
        self._bodies: dict[Hashable, _SharedBody] = {}
        self._turn = asyncio.Lock()

    async def response(
        self,
        stored: LeftOutResult,
        form: Hashable,
        encode: Encode,
        status: int,
        headers: RawHeaders,
    ) -> StreamResponse:
        """A response whose body ``encode`` makes from the result.

        Requests for the same result and the same ``form`` share a body: ``form`` identifies
        everything else that the body depends on. Raises TooManyBytesInFlight or ServerBusy if there
        is no room for it, and JobNotFound if the result was deleted.
        """
        key = (stored.job, form)
        body = self._bodies.get(key)
        if body is None:
            body = self._bodies[key] = _SharedBody(lambda: self._bodies.pop(key))
            body.making = asyncio.create_task(self._make(body, stored, encode))
        body.readers += 1
        try:
            made = await asyncio.shield(body.making)
        except BaseException:
            body.end()
            raise
        length = (b"content-length", b"%d" % len(made))
        response = StreamResponse(status, _slices(made), [JSON, length, *headers])
        response.reservation = _Reader(body)
        response.is_compressible = True
        return response

    async def _make(self, body: _SharedBody, stored: LeftOutResult, encode: Encode) -> bytes:
        try:
            body.reservation = await self._budget.reserve(
                stored.org, stored.size + _ENVELOPE_BYTES, ANSWER_WAIT_SECONDS_MAX
            )
            async with self._turn:
                made = await encode(await self._engine.result(stored.job, org=stored.org))
            body.reservation.resize(len(made))
            return made
        finally:
            body.is_made = True
            body.forget_if_unread()


class _SharedBody:
    """A body that several responses share. It is freed after the last of them."""

    def __init__(self, forget: Callable[[], object]) -> None:
        self.making: asyncio.Task[bytes]
        self.reservation: Reservation | None = None
        self.readers = 0
        self.is_made = False
        self._forget = forget

    def end(self) -> None:
        """One reader has finished."""
        self.readers -= 1
        self.forget_if_unread()

    def forget_if_unread(self) -> None:
        if self.readers == 0 and self.is_made:
            if self.reservation is not None:
                self.reservation.end()
            self._forget()


class _Reader:
    """One response's use of a shared body."""

    def __init__(self, body: _SharedBody) -> None:
        self._body: _SharedBody | None = body

    def end(self) -> None:
        if self._body is not None:
            self._body.end()
            self._body = None


async def _slices(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), SLICE_BYTES_MAX):
        yield body[start : start + SLICE_BYTES_MAX]
