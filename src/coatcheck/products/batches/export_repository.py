"""Creates and reads exports, for the routes; ``exporter.py`` writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from coatcheck.core.queries import jobs
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.notifications import READY, Notifier
from coatcheck.db.queries import in_transaction
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.ids import InvalidId, from_text, new_id, to_text
from coatcheck.domain.lanes import Lane
from coatcheck.products.batches.model import (
    EXPORT_ENDPOINT,
    BatchView,
    ExportView,
    RunView,
    internal_job,
)
from coatcheck.products.batches.queries import sql

_LISTED_MAX: Final = 100


class ExportRepository:
    """Creates and reads exports. Callers pass a batch that they have read, and so may see."""

    def __init__(self, db: Connection, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier

    async def create(
        self, view: BatchView, run: RunView | None, *, request_id: str | None
    ) -> ExportView:
        """Request an export of the ended tasks of a run; for None, of the batch as a whole: each
        task once, with its latest result. The request is durable when this returns.

        If the run has not ended, the export has the tasks that ended before it was written. Raises
        JobNotFound if the batch was deleted meanwhile.
        """
        export = new_id()
        job = internal_job(
            view.org, Lane.BULK, EXPORT_ENDPOINT, {"export": to_text(export)}, request_id
        )
        last = run or view.current

        async def insert(connection: RawConnection) -> None:
            await jobs.insert(connection, [job])
            await sql.fetch(
                connection,
                "exports/create",
                org=view.org,
                export=export,
                batch=view.uuid,
                run=last.uuid,
                job=job.uuid,
                all_runs=run is None,
            )

        await in_transaction(self._db, insert)
        self._notifier.notify(READY, [EXPORT_ENDPOINT])
        return await self._get(view, export)

    async def get(self, view: BatchView, export_id: str) -> ExportView:
        """Read an export. Raises JobNotFound, also if it has expired."""
        try:
            export = from_text(export_id)
        except InvalidId as error:
            raise JobNotFound("there is no such export") from error
        return await self._get(view, export)

    async def list(self, view: BatchView) -> Sequence[ExportView]:
        """The newest exports of a batch, newest first."""
        rows = await sql.fetch(
            self._db, "exports/list", org=view.org, batch=view.uuid, limit=_LISTED_MAX
        )
        return [ExportView(*row) for row in rows]

    async def _get(self, view: BatchView, export: UUID) -> ExportView:
        row = await sql.first(self._db, "exports/get", org=view.org, batch=view.uuid, export=export)
        if row is None:
            raise JobNotFound("there is no such export")
        return ExportView(*row)


async def known(db: Connection, blobs: Sequence[tuple[UUID, str]]) -> set[str]:
    """The keys of these (export id, blob key) that belong to an export that has not expired."""
    ids, keys = [export for export, _ in blobs], [key for _, key in blobs]
    rows = await sql.fetch(db, "exports/known", ids=ids, keys=keys)
    return {row[0] for row in rows}
