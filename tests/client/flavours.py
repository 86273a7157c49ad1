"""Both clients behind one face, so that one test tests both.

``Client`` runs in a thread of its own, as it would beside an event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from coatcheck.client import AsyncClient, AsyncJob, Client, Event, Job

AnyJob = AsyncJob | Job


class Flavour:
    """A client whose methods are awaited, whichever it is; its pauses are noted and not taken."""

    def __init__(self, kind: type[AsyncClient] | type[Client], *args: Any, **options: Any) -> None:
        self.client = kind(*args, **options)
        self.pauses: list[float] = []
        note: Callable[[float], Any] = self._note
        if isinstance(self.client, AsyncClient):
            note = self._note_async
        self.client._exchange.pause = note  # noqa: SLF001  so that nobody waits

    def _note(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def _note_async(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.client, name)

        async def run(*args: Any, **options: Any) -> Any:
            return await self.do(method, *args, **options)

        return run

    async def do(self, method: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        """Run a method of the client or of one of its jobs."""
        if isinstance(self.client, AsyncClient):
            return await method(*args, **options)
        return await asyncio.to_thread(method, *args, **options)

    async def stream(self, job: AnyJob | str, **options: Any) -> list[Event]:
        """All events of a job; an error ends the list and is raised."""
        return [event async for event in self.events(job, **options)]

    async def events(self, job: AnyJob | str, **options: Any) -> Any:
        events = self.client.stream(job, **options)  # type: ignore[arg-type]
        if isinstance(self.client, AsyncClient):
            async for event in events:  # type: ignore[union-attr]
                yield event
            return
        end = object()
        while (event := await asyncio.to_thread(next, events, end)) is not end:
            yield event

    async def all_jobs(self, *args: Any, **options: Any) -> list[AnyJob]:
        jobs = self.client.list_all(*args, **options)
        if isinstance(self.client, AsyncClient):
            return [job async for job in jobs]  # type: ignore[union-attr]
        return await asyncio.to_thread(list, jobs)

    @property
    def batches(self) -> PartFlavour:
        return PartFlavour(self, self.client.batches)

    @property
    def graphs(self) -> PartFlavour:
        return PartFlavour(self, self.client.graphs)

    @property
    def jobs(self) -> PartFlavour:
        return PartFlavour(self, self.client.jobs)

    @property
    def webhooks(self) -> PartFlavour:
        return PartFlavour(self, self.client.webhooks)

    async def close(self) -> None:
        if isinstance(self.client, AsyncClient):
            await self.client.aclose()
        else:
            self.client.close()


class PartFlavour:
    """``client.batches``, ``client.jobs`` and the like behind the same face."""

    def __init__(self, flavour: Flavour, part: Any) -> None:
        self._flavour = flavour
        self._part = part

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._part, name)

        async def run(*args: Any, **options: Any) -> Any:
            return await self._flavour.do(method, *args, **options)

        return run

    async def all(self, name: str, *args: Any, **options: Any) -> list[Any]:
        """Everything that a method iterates over."""
        items = getattr(self._part, name)(*args, **options)
        if isinstance(self._flavour.client, AsyncClient):
            return [item async for item in items]
        return await asyncio.to_thread(list, items)
