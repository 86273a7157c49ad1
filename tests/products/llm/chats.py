"""Jobs of the llm surface without its HTTP: an engine, a worker for chats, and the upkeep."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from coatcheck import Engine, Settings, State, Ticket
from coatcheck.db.database import Database
from coatcheck.domain.job import JobView
from coatcheck.products.llm.executor import LlmExecutor
from coatcheck.products.llm.model import LLM_ENDPOINTS, LlmKind, model_name
from coatcheck.settings.targets import LlmTarget
from coatcheck.worker.worker import Worker
from tests.all_products import maintenance
from tests.waiting import eventually_async

MODEL = "llama3.2"


class Chats:
    """Everything on ``dsn`` that a chat needs. A context manager.

    ``executor`` are options of every executor that is started.
    """

    def __init__(
        self,
        dsn: str,
        folder: Path,
        targets: Iterable[LlmTarget],
        *,
        executor: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.settings = Settings(
            **{
                "database_url": dsn,
                "blob_url": (folder / "blobs").as_uri(),
                "temp_dir": folder / "temp",
                "drain_seconds": 0.0,
                "poll_seconds_min": 0.2,
                "llm_targets": tuple(targets),
                **settings,
            }
        )
        self._executor_options = executor or {}
        self._closing = AsyncExitStack()
        self._workers: dict[Worker, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        self.engine = await self._closing.enter_async_context(await Engine.connect(self.settings))
        upkeep = maintenance(self.settings)
        upkeep.start()
        self._closing.push_async_callback(upkeep.stop)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in list(self._workers):
            await self.stop(worker)
        await self._closing.aclose()

    async def work(self) -> Worker:
        """Start a worker, with an executor of its own as in a process of its own."""
        database = Database.of_worker(self.settings.database_url)
        await self._closing.enter_async_context(database)
        executor = LlmExecutor(self.settings, database, **self._executor_options)
        await self._closing.enter_async_context(executor)
        worker = executor.worker()
        self._workers[worker] = asyncio.create_task(worker.run())
        await worker.ready.wait()
        return worker

    async def stop(self, worker: Worker) -> None:
        """As SIGTERM does."""
        worker.stop()
        await self._workers.pop(worker)

    async def submit(
        self, body: dict[str, Any] | str = "hello", kind: LlmKind = "chat", **options: Any
    ) -> Ticket:
        """A text is one message for MODEL; an object is sent as it is."""
        if isinstance(body, str):
            body = {"model": MODEL, "messages": [{"role": "user", "content": body}]}
        model = model_name(body["model"])
        payload = {"kind": kind, "model": model, "body": body | {"stream": True}}
        return await self.engine.submit(LLM_ENDPOINTS[kind], payload, queue_key=model, **options)

    async def end_of(self, ticket: Ticket) -> JobView:
        view = await self.engine.wait(ticket.id)
        assert view.terminal, f"still {view.state}: {view.error_code} {view.error_message}"
        return view

    async def answer_of(self, ticket: Ticket) -> dict[str, Any]:
        """The whole answer of a job that is expected to complete."""
        view = await self.end_of(ticket)
        assert view.state is State.COMPLETED, f"{view.error_code}: {view.error_message}"
        assert view.result is not None
        stored = json.loads(view.result)
        if "artifact" in stored:
            answer: dict[str, Any] = json.loads(await self.artifact(ticket, stored["artifact"]))
        else:
            answer = stored["inline"]
        return answer

    async def artifact(self, ticket: Ticket, name: str) -> bytes:
        [found] = [each for each in await self.engine.artifacts(ticket.id) if each.name == name]
        return b"".join([piece async for piece in self.engine.read_artifact(found)])

    async def chunks(self, ticket: Ticket) -> list[dict[str, Any]]:
        """What was streamed so far."""
        events = await self.engine.events(ticket.id, limit=10_000)
        return [json.loads(event.data) for event in events if event.kind == "json"]

    async def until(self, ticket: Ticket, state: State) -> JobView:
        async def reached() -> JobView | None:
            view = await self.engine.get(ticket.id)
            return view if view.state is state else None

        view: JobView = await eventually_async(reached, f"the job is {state}")
        return view

    async def until_streaming(self, ticket: Ticket, chunks: int = 1) -> None:
        async def streaming() -> bool:
            return len(await self.chunks(ticket)) >= chunks

        await eventually_async(streaming, f"{chunks} chunks were streamed")


def text_of(chunks: Iterable[dict[str, Any]]) -> str:
    return "".join(chunk["message"]["content"] for chunk in chunks)
