"""A batch: the latest state from the server, and methods to act on it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from coatcheck.client.models import BatchBadLine, BatchBody, BatchTask

if TYPE_CHECKING:
    from coatcheck.client._sync.batches import Batches


class Batch(BatchBody):
    """A batch. Its methods call the server and update the batch's own fields."""

    __slots__ = ("_batches",)

    def __init__(
        self, batches: Batches, raw: Mapping[str, Any], headers: Mapping[str, str]
    ) -> None:
        super().__init__(raw, headers)
        self._batches = batches

    def refresh(self, wait: float | None = None) -> Self:
        """Read the current state of the batch; see ``batches.get``."""
        self._batches.get(self, wait=wait)
        return self

    def wait(self, timeout: float | None = None, *, raise_on_failure: bool = True) -> Self:
        """Wait until every task has ended; see ``batches.wait``. Raises as that does."""
        self._batches.wait(self, timeout, raise_on_failure=raise_on_failure)
        return self

    def add(
        self,
        tasks: Iterable[Any] | None = None,
        *,
        file: str | os.PathLike[str] | None = None,
        upload_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> Self:
        """Add tasks to an open batch; see ``batches.add``."""
        self._batches.add(
            self, tasks, file=file, upload_id=upload_id, idempotency_key=idempotency_key
        )
        return self

    def close(self) -> Self:
        """Close the batch to further tasks; see ``batches.close``."""
        self._batches.close(self)
        return self

    def rerun(
        self,
        *,
        status: str | Iterable[str] | None = None,
        error_code: str | Iterable[str] | None = None,
        run: str | None = None,
        idempotency_key: str | None = None,
    ) -> Self:
        """Run all or some of its tasks again; see ``batches.rerun``."""
        self._batches.rerun(
            self, status=status, error_code=error_code, run=run, idempotency_key=idempotency_key
        )
        return self

    def cancel(self) -> Self:
        """Cancel it. Raises ConflictError if it has already ended in another way."""
        self._batches.cancel(self)
        return self

    def delete(self) -> None:
        """Delete it with all its tasks and results; see ``batches.delete``."""
        self._batches.delete(self)

    def tasks(self, *, status: str | None = None, run: str | None = None) -> Iterator[BatchTask]:
        """Its tasks in order, page by page; see ``batches.tasks``."""
        return self._batches.tasks(self, status=status, run=run)

    def bad_lines(self, *, run: str | None = None) -> Iterator[BatchBadLine]:
        """The invalid lines of its lists; see ``batches.bad_lines``."""
        return self._batches.bad_lines(self, run=run)

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        run: str | None = None,
        timeout: float | None = None,
    ) -> Path:
        """Download all its results as a zip; see ``batches.export``."""
        return self._batches.export(self, path, run=run, timeout=timeout)
