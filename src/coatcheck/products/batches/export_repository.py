"""Exports of a batch: asked for here, written by a worker (products/batches/exporter.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from coatcheck.db.channels import READY
from coatcheck.db.connection import Line
from coatcheck.db.errors import retried
from coatcheck.db.notify import Notifier
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.ids import InvalidId, from_text, new_id, to_text
from coatcheck.domain.job import NewJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.webhooks import INTERNAL
from coatcheck.encoding import encode
from coatcheck.products.batches.model import EXPORT_ENDPOINT, BatchView, ExportView, RunView
from coatcheck.products.batches.queries import exports as export_store

_RETRIES: Final = 5
_KEEP_SECONDS: Final = 3_600
"""Of the job that writes it, which nobody reads; long enough for its error to be noted."""
_LISTED_MAX: Final = 100


class BatchExports:
    """Exports of batches that the caller has read, and so may see."""

    def __init__(self, line: Line, notifier: Notifier) -> None:
        self._line = line
        self._notifier = notifier

    async def create(
        self, view: BatchView, run: RunView | None, *, request_id: str | None
    ) -> ExportView:
        """Ask for an export of what has ended of a run, or, for None, of the batch as a whole: each
        task once, with its latest result. Durable when this returns.

        Of a run that goes on, it holds what has ended by the time it is written. Raises
        JobNotFound if the batch was deleted meanwhile.
        """
        export = new_id()
        job = self._job(view, export, request_id)
        last = run or view.current
        await retried(
            lambda: export_store.create(
                self._line, job, export, view.uuid, last.uuid, all_runs=run is None
            )
        )
        self._notifier.say(READY, [EXPORT_ENDPOINT])
        return await self._get(view, export)

    async def get(self, view: BatchView, export_id: str) -> ExportView:
        """An export as it is now. Raises JobNotFound, also once its time is up."""
        try:
            export = from_text(export_id)
        except InvalidId as error:
            raise JobNotFound("there is no such export") from error
        return await self._get(view, export)

    async def list(self, view: BatchView) -> Sequence[ExportView]:
        """The newest exports of a batch."""
        return await retried(
            lambda: export_store.list_exports(self._line, view.org, view.uuid, _LISTED_MAX)
        )

    async def _get(self, view: BatchView, export: UUID) -> ExportView:
        found = await retried(lambda: export_store.get(self._line, view.org, view.uuid, export))
        if found is None:
            raise JobNotFound("there is no such export")
        return found

    @staticmethod
    def _job(view: BatchView, export: UUID, request_id: str | None) -> NewJob:
        options = {
            "keep_completed_seconds": _KEEP_SECONDS,
            "keep_failed_seconds": _KEEP_SECONDS,
            "webhook": INTERNAL,
        }
        return NewJob(
            view.org,
            new_id(),
            str(Lane.BULK),
            EXPORT_ENDPOINT,
            "",
            _RETRIES,
            encode({"export": to_text(export)}),
            request_id=request_id,
            options=encode(options).decode(),
        )
