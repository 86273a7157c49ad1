"""The client's API for batches: jobs of one task or a million, and their exports."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import httpx2

from coatcheck.client._async.exchange import AsyncExchange
from coatcheck.client._async.files import AsyncFiles, AsyncTaskLists
from coatcheck.client.addresses import Addresses, with_query
from coatcheck.client.answers import KeysetPage, read, read_object, read_result
from coatcheck.client.batch_request import (
    TaskRequest,
    batch_options,
    given,
    keyed_headers,
    rerun_body,
)
from coatcheck.client.errors import (
    BatchFailed,
    ConflictError,
    ExportFailed,
    NotFoundError,
    UnexpectedAnswer,
)
from coatcheck.client.models import (
    BatchBadLine,
    BatchBody,
    BatchExport,
    BatchTask,
    DeadLetter,
    converted,
)
from coatcheck.client.request_headers import seconds
from coatcheck.client.retries import BACKOFF, Deadline, Polling
from coatcheck.encoding import encode

"""How long the server holds one long-poll: less than most proxies allow."""
PAGE_ITEMS: Final = 200


class AsyncBatches:
    """Batches: ``client.batches``.

    Every method accepts a batch or its id; a batch is updated in place.
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
        """Submit a batch: a call of one endpoint for each task. When this returns, it is durable.

        The tasks are ``tasks``, each anything that fits JSON, or ``{"custom_id": ..., "input":
        ...}``; or the lines of ``file``, NDJSON; or an earlier upload, ``upload_id``. A short list
        is sent with the request. A long one of any length is first uploaded to the server's store,
        with no more than a piece of it in memory. With your own ``idempotency_key`` the list is
        the request's body instead, so that the server can compare it.

        ``is_open``: tasks may be added until the batch is closed; it may start with none.
        ``concurrency`` limits how many run at once. ``rate`` limits how many start per second: in
        total, or with ``rate_key`` per value of that field (of a URL: per host); ``key_rate`` sets
        the two separately. Without an ``idempotency_key`` a new one is used, so that a retry cannot
        create a second batch.
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
        response = await self._lists.submit(request, tasks, file, upload_id)
        return self._batch(read_object(response), response.headers)

    async def upload(self, file: str | os.PathLike[str]) -> str:
        """Upload a file of NDJSON lines, to be submitted as ``upload_id`` before it expires."""
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

        With the same ``idempotency_key`` they are added only once. Raises ConflictError if the
        batch is closed.
        """
        request = TaskRequest(f"{self._url(batch)}/tasks", {}, idempotency_key)
        response = await self._lists.submit(request, tasks, file, upload_id)
        return self._learn(batch, response)

    async def close(self, batch: AsyncBatch | str) -> AsyncBatch:
        """Close an open batch: it completes when all its tasks have ended."""
        response = await self._exchange.send("POST", f"{self._url(batch)}/close")
        return self._learn(batch, response)

    async def get(self, batch: AsyncBatch | str, *, wait: float | None = None) -> AsyncBatch:
        """The current state of the batch. Raises NotFoundError.

        With ``wait`` the server answers when the batch has ended, or after that many seconds (at
        most 60).
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
        """Wait until every task has ended; ``counts`` has the outcome.

        Raises WaitTimeout after ``timeout`` seconds (None: never), and BatchFailed if its list
        could not be ingested or it was cancelled, unless ``raise_on_failure`` is false.
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
        """All your batches, newest first, fetched page by page."""
        async for raw in self._items(self._addresses.batches(), {}):
            yield self._batch(raw, {})

    async def tasks(
        self, batch: AsyncBatch | str, *, status: str | None = None, run: str | None = None
    ) -> AsyncIterator[BatchTask]:
        """The batch's tasks in order, fetched page by page: of the current run or of ``run``; with
        ``run="all"`` each once, with its latest result.

        ``status`` is ``pending``, ``running``, ``succeeded``, ``failed`` or ``cancelled``. To get
        all of many tasks, ``export`` is faster.
        """
        query = {"status": status, "run": run}
        async for raw in self._items(f"{self._url(batch)}/tasks", query):
            yield converted(raw, BatchTask)

    async def task(self, batch: AsyncBatch | str, task_id: str) -> BatchTask:
        """One task, with its ``input``. Raises NotFoundError."""
        url = self._addresses.below(self._id(batch), "tasks", task_id)
        return read(await self._exchange.send("GET", url), BatchTask)

    async def result(self, batch: AsyncBatch | str, task: BatchTask | str) -> Any:
        """A task's result of any length, as ``client.call`` returns one. Raises NotFoundError."""
        task_id = task if isinstance(task, str) else task.id
        url = self._addresses.below(self._id(batch), "tasks", task_id)
        return read_result(await self._exchange.send("GET", f"{url}/result"))

    async def bad_lines(
        self, batch: AsyncBatch | str, *, run: str | None = None
    ) -> AsyncIterator[BatchBadLine]:
        """The invalid lines with their numbers; if there are very many, the first ones."""
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
        """Run all tasks of the batch again as a new run, or only some of them.

        ``status="failed"`` selects failed tasks, ``error_code`` those with that error: of the
        current run, of ``run``, or, with ``run="all"``, by each task's latest result. With ``run``
        alone, all tasks of that run. Raises ConflictError while the batch runs, and if no task
        matches.
        """
        response = await self._exchange.send(
            "POST",
            f"{self._url(batch)}/rerun",
            headers=keyed_headers(idempotency_key),
            content=rerun_body(status, error_code, run),
        )
        return self._learn(batch, response)

    async def cancel(self, batch: AsyncBatch | str) -> AsyncBatch:
        """Cancel the batch, and return its state after that.

        Waiting tasks are cancelled; running ones are asked to stop. Raises ConflictError if the
        batch has already ended in another way.
        """
        try:
            response = await self._exchange.send("POST", f"{self._url(batch)}/cancel")
        except ConflictError:
            # A retry of a request that succeeded gets this answer, too.
            now = await self.get(batch)
            if now.status != "cancelled":
                raise
            return now
        return self._learn(batch, response)

    async def delete(self, batch: AsyncBatch | str) -> None:
        """Delete a batch with its tasks, results and exports. Raises NotFoundError."""
        await self.get(batch)
        with suppress(NotFoundError):  # the answer to a retry of a request that succeeded
            await self._exchange.send("DELETE", self._url(batch))

    async def export(
        self,
        batch: AsyncBatch | str,
        path: str | os.PathLike[str],
        *,
        run: str | None = None,
        timeout: float | None = None,
    ) -> Path:
        """Download the results of the current run, or of ``run``, as a zip to ``path``; with
        ``run="all"`` the latest result of each task.

        The server writes the zip first: ``timeout`` limits the seconds to wait for that. The
        download is checked against its checksum, and resumes if the connection breaks. The file
        appears at ``path`` only when it is complete.
        """
        export = await self._exports.create(self._id(batch), run)
        export = await self._exports.wait(self._id(batch), export, Deadline(timeout))
        return await self._exports.download(export, Path(path))

    async def create_export(
        self, batch: AsyncBatch | str, *, run: str | None = None
    ) -> BatchExport:
        """Have the server write a zip of the results; poll it with ``get_export``."""
        return await self._exports.create(self._id(batch), run)

    async def get_export(self, batch: AsyncBatch | str, export_id: str) -> BatchExport:
        """The current state of an export; its ``url`` needs no credential. Raises NotFoundError."""
        return await self._exports.get(self._id(batch), export_id)

    async def dead_letters(self) -> AsyncIterator[DeadLetter]:
        """The lists of your batches that could not be ingested."""
        async for raw in self._items(self._addresses.dead_letters(), {}):
            yield converted(raw, DeadLetter)

    async def redrive(self, letter: DeadLetter | str) -> None:
        """Try again to ingest a list that failed. Raises NotFoundError."""
        letter_id = letter if isinstance(letter, str) else letter.id
        await self._exchange.send("POST", f"{self._addresses.dead_letter(letter_id)}/redrive")

    async def _items(self, url: str, query: Mapping[str, object]) -> AsyncIterator[dict[str, Any]]:
        """All items of a listing, fetched page by page."""
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


class AsyncBatch(BatchBody):
    """A batch. Its methods call the server and update the batch's own fields."""

    __slots__ = ("_batches",)

    def __init__(
        self, batches: AsyncBatches, raw: Mapping[str, Any], headers: Mapping[str, str]
    ) -> None:
        super().__init__(raw, headers)
        self._batches = batches

    async def refresh(self, wait: float | None = None) -> Self:
        """Read the current state of the batch; see ``batches.get``."""
        await self._batches.get(self, wait=wait)
        return self

    async def wait(self, timeout: float | None = None, *, raise_on_failure: bool = True) -> Self:
        """Wait until every task has ended; see ``batches.wait``. Raises as that does."""
        await self._batches.wait(self, timeout, raise_on_failure=raise_on_failure)
        return self

    async def add(
        self,
        tasks: Iterable[Any] | None = None,
        *,
        file: str | os.PathLike[str] | None = None,
        upload_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> Self:
        """Add tasks to an open batch; see ``batches.add``."""
        await self._batches.add(
            self, tasks, file=file, upload_id=upload_id, idempotency_key=idempotency_key
        )
        return self

    async def close(self) -> Self:
        """Close the batch to further tasks; see ``batches.close``."""
        await self._batches.close(self)
        return self

    async def rerun(
        self,
        *,
        status: str | Iterable[str] | None = None,
        error_code: str | Iterable[str] | None = None,
        run: str | None = None,
        idempotency_key: str | None = None,
    ) -> Self:
        """Run all or some of its tasks again; see ``batches.rerun``."""
        await self._batches.rerun(
            self, status=status, error_code=error_code, run=run, idempotency_key=idempotency_key
        )
        return self

    async def cancel(self) -> Self:
        """Cancel it. Raises ConflictError if it has already ended in another way."""
        await self._batches.cancel(self)
        return self

    async def delete(self) -> None:
        """Delete it with all its tasks and results; see ``batches.delete``."""
        await self._batches.delete(self)

    def tasks(
        self, *, status: str | None = None, run: str | None = None
    ) -> AsyncIterator[BatchTask]:
        """Its tasks in order, page by page; see ``batches.tasks``."""
        return self._batches.tasks(self, status=status, run=run)

    def bad_lines(self, *, run: str | None = None) -> AsyncIterator[BatchBadLine]:
        """The invalid lines of its lists; see ``batches.bad_lines``."""
        return self._batches.bad_lines(self, run=run)

    async def export(
        self, path: str | os.PathLike[str], *, run: str | None = None, timeout: float | None = None
    ) -> Path:
        """Download all its results as a zip; see ``batches.export``."""
        return await self._batches.export(self, path, run=run, timeout=timeout)


LOOKS_APART_MAX: Final = 4
"""How often the interval between two polls of an export is doubled, at most."""


class AsyncExports:
    """The steps of an export."""

    def __init__(self, exchange: AsyncExchange, addresses: Addresses) -> None:
        self._exchange = exchange
        self._addresses = addresses
        self._files = AsyncFiles(exchange)

    async def create(self, batch_id: str, run: str | None) -> BatchExport:
        response = await self._exchange.send(
            "POST",
            f"{self._addresses.batch(batch_id)}/exports",
            headers=keyed_headers(None),
            content=encode(given(run=run)),
        )
        return read(response, BatchExport)

    async def get(self, batch_id: str, export_id: str) -> BatchExport:
        url = self._addresses.below(batch_id, "exports", export_id)
        return read(await self._exchange.send("GET", url), BatchExport)

    async def wait(self, batch_id: str, export: BatchExport, deadline: Deadline) -> BatchExport:
        """Wait until the export is ready. Raises ExportFailed."""
        looks = 0
        while export.url is None:
            if export.terminal:
                raise _failure(export)
            if deadline.passed:
                message = f"The export was not ready within {deadline.seconds:g} s."
                raise ExportFailed(export, "wait_timeout", message)
            delay = BACKOFF.delay(min(looks, LOOKS_APART_MAX), random.random())
            await self._exchange.pause(min(delay, deadline.remaining()))
            looks += 1
            export = await self.get(batch_id, export.id)
        return export

    async def download(self, export: BatchExport, path: Path) -> Path:
        """Download an export to a file, which appears when it is complete and checked."""
        if export.url is None or export.bytes is None or export.sha256 is None:
            raise UnexpectedAnswer("the answer has an export without a URL or a size")
        url = self._addresses.signed(export.url)
        return await self._files.download(url, path, export.bytes, export.sha256)


def _failure(export: BatchExport) -> ExportFailed:
    if export.error is None:
        return ExportFailed(export, "export_failed", "The server gave no reason.")
    return ExportFailed(export, export.error.code, export.error.message)
