"""A batch of a client's: what the server last said of it, and what can be done with it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from coatcheck.client.batch_body import BatchBadLine, BatchBody, BatchTask

if TYPE_CHECKING:
    from coatcheck.client._async.batches import AsyncBatches


class AsyncBatch(BatchBody):
    """A batch. Its methods ask the server and bring the batch's own fields up to date."""

    __slots__ = ("_batches",)

    def __init__(
        self, batches: AsyncBatches, raw: Mapping[str, Any], headers: Mapping[str, str]
    ) -> None:
        super().__init__(raw, headers)
        self._batches = batches

    async def refresh(self, wait: float | None = None) -> Self:
        """Ask once how the batch is now; see ``batches.get``."""
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
        """Say that no more tasks will come; see ``batches.close``."""
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
        """Run its tasks again, or some of them; see ``batches.rerun``."""
        await self._batches.rerun(
            self, status=status, error_code=error_code, run=run, idempotency_key=idempotency_key
        )
        return self

    async def cancel(self) -> Self:
        """Ask for its end. Raises ConflictError if it has ended otherwise."""
        await self._batches.cancel(self)
        return self

    async def delete(self) -> None:
        """Remove it with all its tasks and results; see ``batches.delete``."""
        await self._batches.delete(self)

    def tasks(
        self, *, status: str | None = None, run: str | None = None
    ) -> AsyncIterator[BatchTask]:
        """Its tasks in order, page by page; see ``batches.tasks``."""
        return self._batches.tasks(self, status=status, run=run)

    def bad_lines(self, *, run: str | None = None) -> AsyncIterator[BatchBadLine]:
        """The lines of its lists that are no tasks; see ``batches.bad_lines``."""
        return self._batches.bad_lines(self, run=run)

    async def export(
        self,
        path: str | os.PathLike[str],
        *,
        run: str | None = None,
        timeout: float | None = None,
    ) -> Path:
        """Fetch all its results as a zip; see ``batches.export``."""
        return await self._batches.export(self, path, run=run, timeout=timeout)
