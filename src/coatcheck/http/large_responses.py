"""Answers with a large result: held once for all who read them, and within a budget.

A result may have 16 MiB, and its readers decide how long they take. Were each of them sent a copy,
a hundred slow ones would cost the memory of a hundred results. So the body of such an answer is
made once, for as long as somebody reads it, and goes out in slices, the next once a reader has
room for it. What all of them hold in memory is bounded (``memory_budget.py``), and so is the memory
that making them takes: one is made at a time.
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
"""What is reserved for the rest of a body, until it is known."""

Encode = Callable[[bytes], Awaitable[bytes]]
"""Makes the body of an answer, given the result."""


class LeftOutResult(NamedTuple):
    """A result that was left out: whose it is, and how long."""

    org: str
    job: UUID
    size: int


class LargeResponses:
    """Makes answers of results that are too long to be read with their jobs."""

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
        """An answer whose body ``encode`` makes of the result.

        Readers share it who ask for the same ``form`` of a result: it names all that the body
        depends on. Raises TooManyBytesInFlight or ServerBusy if there is no room for it, and
        JobNotFound if the result is gone.
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
    """A body that several may read; gone with the last of them."""

    def __init__(self, forget: Callable[[], object]) -> None:
        self.making: asyncio.Task[bytes]
        self.reservation: Reservation | None = None
        self.readers = 0
        self.is_made = False
        self._forget = forget

    def end(self) -> None:
        """One reader less."""
        self.readers -= 1
        self.forget_if_unread()

    def forget_if_unread(self) -> None:
        if self.readers == 0 and self.is_made:
            if self.reservation is not None:
                self.reservation.end()
            self._forget()


class _Reader:
    """One reader's part in a body."""

    def __init__(self, body: _SharedBody) -> None:
        self._body: _SharedBody | None = body

    def end(self) -> None:
        if self._body is not None:
            self._body.end()
            self._body = None


async def _slices(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), SLICE_BYTES_MAX):
        yield body[start : start + SLICE_BYTES_MAX]
