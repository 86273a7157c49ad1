"""Group commit without a timer: requests that arrive during a statement share the next one.

An idle batcher sends at once, so no request waits for others. A busy one gathers requests while it
waits for the server, so that they share one round trip and one commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Batcher(Generic[Request, Answer]):
    """Gathers requests for ``flush``, which answers a whole batch, in order.

    ``flights`` is how many statements may be in flight at a time: with several, the server works on
    one while the answers of another wake their callers.

    An answer that is an exception is raised to its own caller only; an exception raised by
    ``flush`` goes to every caller of the batch.
    """

    def __init__(
        self,
        flush: Callable[[list[Request]], Awaitable[Sequence[Answer | Exception]]],
        *,
        rows_max: int,
        flights: int = 1,
    ) -> None:
        self._flush = flush
        self._rows_max = rows_max
        self._flights = flights
        self._waiting: list[tuple[Request, asyncio.Future[Answer]]] = []
        self._flushers: set[asyncio.Task[None]] = set()
        self._flying = 0

    async def ask(self, request: Request) -> Answer:
        """Send ``request`` with the next batch, and wait for its answer."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        if self._flying < self._flights:
            self._flying += 1
            flusher = asyncio.create_task(self._run())
            self._flushers.add(flusher)
            flusher.add_done_callback(self._flushers.discard)
        return await future

    async def drain(self) -> None:
        """Wait until every request has been answered."""
        while self._flushers:
            await asyncio.wait(self._flushers)

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[: self._rows_max]
                self._waiting = self._waiting[self._rows_max :]
                await self._serve(batch)
        finally:
            # Not when the task is done: a caller that was just answered may ask again before that,
            # and nobody would send its request.
            self._flying -= 1

    async def _serve(self, batch: list[tuple[Request, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._flush([request for request, _ in batch])
        except Exception as error:  # noqa: BLE001 - it is raised again, to the callers
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        except BaseException:
            for _, future in batch:
                future.cancel()
            raise
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue  # its caller was cancelled; the row is written all the same
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
