"""The client's batches: jobs of one task or a million."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import httpx2

from coatcheck.client._async.batch import AsyncBatch
from coatcheck.client._async.exchange import AsyncExchange
from coatcheck.client._async.exports import AsyncExports
from coatcheck.client._async.task_lists import AsyncTaskLists
from coatcheck.client.addresses import Addresses, with_query
from coatcheck.client.answers import KeysetPage, read, read_object, read_result
from coatcheck.client.batch_body import (
    BatchBadLine,
    BatchExport,
    BatchTask,
    DeadLetter,
    converted,
)
from coatcheck.client.batch_request import (
    TaskRequest,
    batch_options,
    keyed_headers,
    rerun_order,
)
from coatcheck.client.deadline import Deadline
from coatcheck.client.errors import BatchFailed, ConflictError, NotFoundError
from coatcheck.client.polling import Polling
from coatcheck.client.request_headers import seconds

"""How long the server is asked to hold one long-poll: less than most proxies allow."""
PAGE_ITEMS: Final = 200


class AsyncBatches:
    """What a client can do with batches: ``client.batches``.

    Wherever a batch is asked for, a batch or its id will do; a batch is brought up to date.
    """

    def __init__(self, exchange: AsyncExchange, addresses: Addresses) -> None:
        self._exchange = exchange
        self._addresses = addresses
        self._lists = AsyncTaskLists(exchange, addresses)
        self._exports = AsyncExports(exchange, addresses)

    async def submit(
        self,
        service: str,
        endpoint: str,
        tasks: Iterable[Any] | None = None,
        *,
        file: str | os.PathLike[str] | None = None,
        upload_id: str | None = None,
        version: int | None = None,
        is_open: bool = False,
        asynchronous: bool = False,
        lane: str | None = None,
        concurrency: int | None = None,
        rate: float | None = None,
        rate_key: str | None = None,
        key_rate: float | None = None,
        retries: int | None = None,
        keep_seconds: int | None = None,
        webhook_url: str | None = None,
        webhook_events: Iterable[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncBatch:
        """Hand in a batch: a call of one endpoint for each task. When this returns, it is durable.

        The tasks are ``tasks``, each anything that fits JSON, or ``{"custom_id": ..., "input":
        ...}``; or the lines of ``file``, NDJSON; or what was staged before as ``upload_id``. A
        short list is sent with the request, a long one is staged: sent to the server's store first,
        however long it is, with no more than a piece of it in memory. Under an ``idempotency_key``
        of yours it is the request's body instead, which the server can compare.

        ``is_open``: more tasks may be added until it is closed; then it may begin with none.
        ``concurrency`` bounds how many run at a time, ``rate`` how many begin each second, of all
        or, with ``rate_key``, of those with the same value (of a URL: the same host) in that field;
        ``key_rate`` sets both apart. Without an ``idempotency_key`` there is a fresh one, so that a
        retry cannot make a second batch.
        """
        options = batch_options(
            service=service,
            endpoint=endpoint,
            version=version,
            is_open=is_open,
            asynchronous=asynchronous,
            lane=lane,
            concurrency=concurrency,
            rate=rate,
            rate_key=rate_key,
            key_rate=key_rate,
            retries=retries,
            keep_seconds=keep_seconds,
            webhook_url=webhook_url,
            webhook_events=webhook_events,
            metadata=metadata,
        )
        request = TaskRequest(self._addresses.batches(), options, idempotency_key, headers or {})
        response = await self._lists.hand_in(request, tasks, file, upload_id)
        return self._batch(read_object(response), response.headers)

    async def upload(self, file: str | os.PathLike[str]) -> str:
        """Stage a file of NDJSON lines, to be handed in as ``upload_id`` within a while."""
        return await self._lists.upload(file)

    async def add(
        self,
        batch: AsyncBatch | str,
        tasks: Iterable[Any] | None = None,
        *,
        file: str | os.PathLike[str] | None = None,
        upload_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncBatch:
        """Add tasks to an open batch, given as for ``submit``.

        Under the same ``idempotency_key`` they are added once. Raises ConflictError if the batch is
        closed.
        """
        request = TaskRequest(f"{self._url(batch)}/tasks", {}, idempotency_key)
        response = await self._lists.hand_in(request, tasks, file, upload_id)
        return self._learn(batch, response)

    async def close(self, batch: AsyncBatch | str) -> AsyncBatch:
        """Say that an open batch gets no more tasks: it completes when those it has have ended."""
        response = await self._exchange.send("POST", f"{self._url(batch)}/close")
        return self._learn(batch, response)

    async def get(self, batch: AsyncBatch | str, *, wait: float | None = None) -> AsyncBatch:
        """The batch as it is now. Raises NotFoundError.

        With ``wait`` it is answered when the batch has ended, or after so many seconds (60 at
        most).
        """
        url = self._url(batch)
        if wait is not None:
            url = with_query(url, {"wait": seconds(wait)})
        return self._learn(batch, await self._exchange.send("GET", url, held=wait or 0.0))

    async def wait(
        self,
        batch: AsyncBatch | str,
        timeout: float | None = None,
        *,
        raise_on_failure: bool = True,
    ) -> AsyncBatch:
        """The batch once every task has ended; look at its ``counts``.

        Raises WaitTimeout after ``timeout`` seconds (None: never), and BatchFailed if its list
        could not be taken in or it was cancelled, unless ``raise_on_failure`` is false.
        """
        polling = Polling(timeout)
        while isinstance(batch, str) or not batch.terminal:
            held = polling.next_hold()
            url = with_query(self._url(batch), {"wait": seconds(held)})
            response = await self._exchange.send("GET", url, held=held, deadline=polling.deadline)
            batch = self._learn(batch, response)
            if batch.terminal:
                break
            if pause := polling.pause(batch):
                await self._exchange.pause(pause)
        if raise_on_failure and batch.status != "completed":
            raise BatchFailed(batch)
        return batch

    async def list_all(self) -> AsyncIterator[AsyncBatch]:
        """All your batches, newest first, asked for page by page."""
        async for raw in self._items(self._addresses.batches(), {}):
            yield self._batch(raw, {})

    async def tasks(
        self, batch: AsyncBatch | str, *, status: str | None = None, run: str | None = None
    ) -> AsyncIterator[BatchTask]:
        """The batch's tasks in order, asked for page by page: those of the current run, or ``run``;
        for ``run="all"`` each once, with its latest result.

        ``status`` is ``pending``, ``running``, ``succeeded``, ``failed`` or ``cancelled``. For all
        of many, ``export`` is faster.
        """
        query = {"status": status, "run": run}
        async for raw in self._items(f"{self._url(batch)}/tasks", query):
            yield converted(raw, BatchTask)

    async def task(self, batch: AsyncBatch | str, task_id: str) -> BatchTask:
        """One task, with its ``input``. Raises NotFoundError."""
        url = self._addresses.below(self._id(batch), "tasks", task_id)
        return read(await self._exchange.send("GET", url), BatchTask)

    async def result(self, batch: AsyncBatch | str, task: BatchTask | str) -> Any:
        """A task's result, however long, as ``client.call`` returns one. Raises NotFoundError."""
        task_id = task if isinstance(task, str) else task.id
        url = self._addresses.below(self._id(batch), "tasks", task_id)
        return read_result(await self._exchange.send("GET", f"{url}/result"))

    async def bad_lines(
        self, batch: AsyncBatch | str, *, run: str | None = None
    ) -> AsyncIterator[BatchBadLine]:
        """The lines that are no tasks, with their numbers; of very many the first."""
        async for raw in self._items(f"{self._url(batch)}/bad-lines", {"run": run}):
            yield converted(raw, BatchBadLine)

    async def rerun(
        self,
        batch: AsyncBatch | str,
        *,
        status: str | Iterable[str] | None = None,
        error_code: str | Iterable[str] | None = None,
        run: str | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncBatch:
        """Run all tasks of the batch again, as a new run, or only those that are chosen.

        ``status="failed"`` takes those that failed, ``error_code`` those that failed so: of the
        current run, of ``run``, or, for ``run="all"``, by each task's latest result. With ``run``
        alone, all tasks of that run. Raises ConflictError while the batch runs, and if there is
        nothing to run.
        """
        response = await self._exchange.send(
            "POST",
            f"{self._url(batch)}/rerun",
            headers=keyed_headers(idempotency_key),
            content=rerun_order(status, error_code, run),
        )
        return self._learn(batch, response)

    async def cancel(self, batch: AsyncBatch | str) -> AsyncBatch:
        """Ask for the batch's end, and return it as it is then.

        Tasks that wait are cancelled, those that run are asked to stop. Raises ConflictError if it
        has ended otherwise.
        """
        try:
            response = await self._exchange.send("POST", f"{self._url(batch)}/cancel")
        except ConflictError:
            # Also the answer to a second try of what the first one did.
            now = await self.get(batch)
            if now.status != "cancelled":
                raise
            return now
        return self._learn(batch, response)

    async def delete(self, batch: AsyncBatch | str) -> None:
        """Remove a batch, with its tasks, results and exports. Raises NotFoundError."""
        await self.get(batch)
        with suppress(NotFoundError):  # the answer to a second try of what the first one did
            await self._exchange.send("DELETE", self._url(batch))

    async def export(
        self,
        batch: AsyncBatch | str,
        path: str | os.PathLike[str],
        *,
        run: str | None = None,
        timeout: float | None = None,
    ) -> Path:
        """Fetch the results of the current run, or of ``run``, as a zip to ``path``; for
        ``run="all"`` the latest result of each task.

        The server writes it first: ``timeout`` bounds how many seconds that is waited for. What
        comes is checked against its checksum, and a connection that breaks goes on where it broke.
        There is a file at ``path`` only once all of it has come.
        """
        export = await self._exports.create(self._id(batch), run)
        export = await self._exports.wait(self._id(batch), export, Deadline(timeout))
        return await self._exports.download(export, Path(path))

    async def create_export(
        self, batch: AsyncBatch | str, *, run: str | None = None
    ) -> BatchExport:
        """Have the server write a zip of the results, for ``get_export`` to ask for later."""
        return await self._exports.create(self._id(batch), run)

    async def get_export(self, batch: AsyncBatch | str, export_id: str) -> BatchExport:
        """An export as it is now; its ``url`` needs no credential. Raises NotFoundError."""
        return await self._exports.get(self._id(batch), export_id)

    async def dead_letters(self) -> AsyncIterator[DeadLetter]:
        """The lists of your batches that could not be taken in."""
        async for raw in self._items(self._addresses.dead_letters(), {}):
            yield converted(raw, DeadLetter)

    async def redrive(self, letter: DeadLetter | str) -> None:
        """Have a list that could not be taken in tried again. Raises NotFoundError."""
        letter_id = letter if isinstance(letter, str) else letter.id
        await self._exchange.send("POST", f"{self._addresses.dead_letter(letter_id)}/redrive")

    async def _items(self, url: str, query: Mapping[str, object]) -> AsyncIterator[dict[str, Any]]:
        """Everything of a listing, asked for page by page."""
        page_url: str | None = with_query(url, {"limit": PAGE_ITEMS, **query})
        while page_url is not None:
            page = read(await self._exchange.send("GET", page_url), KeysetPage)
            for item in page.items:
                yield item
            page_url = with_query(page_url, {"cursor": page.next}) if page.next else None

    def _url(self, batch: AsyncBatch | str) -> str:
        return self._addresses.batch(self._id(batch))

    @staticmethod
    def _id(batch: AsyncBatch | str) -> str:
        return batch if isinstance(batch, str) else batch.id

    def _learn(self, batch: AsyncBatch | str, response: httpx2.Response) -> AsyncBatch:
        raw = read_object(response)
        if isinstance(batch, str):
            return self._batch(raw, response.headers)
        batch.learn(raw, response.headers.get("etag"))
        return batch

    def _batch(self, raw: Mapping[str, Any], headers: Mapping[str, str]) -> AsyncBatch:
        return AsyncBatch(self, raw, headers)
