"""Reads a source ahead of whoever takes from it, by a little."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

Item = TypeVar("Item")


@asynccontextmanager
async def reading_ahead(source: AsyncIterator[Item]) -> AsyncIterator[AsyncIterator[Item]]:
    """The items of ``source``, the next of which is being read while the last is worked on.

    An error of the source's is raised where its item would have come.
    """
    waiting: asyncio.Queue[Item | _End] = asyncio.Queue(maxsize=1)

    async def read() -> None:
        try:
            async for item in source:
                await waiting.put(item)
        except Exception as error:  # noqa: BLE001 - raised by whoever takes from it
            await waiting.put(_End(error))
        else:
            await waiting.put(_End(None))

    async def taken() -> AsyncIterator[Item]:
        while True:
            item = await waiting.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item

    reader = asyncio.create_task(read(), name="reading ahead")
    try:
        yield taken()
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


class _End:
    def __init__(self, error: Exception | None) -> None:
        self.error = error
