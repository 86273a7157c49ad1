"""Removes batches that were deleted, and those whose retention has ended: a chunk of each at a
time, so that a run of a million holds nobody up."""

from __future__ import annotations

import logging
from typing import ClassVar, Final

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.pieces import delete_pieces
from coatcheck.crash import crash_point
from coatcheck.db.channels import READY
from coatcheck.db.connection import Line
from coatcheck.db.notify import Notifier
from coatcheck.domain.errors import BlobStoreUnavailable
from coatcheck.domain.ids import to_text
from coatcheck.maintenance.loop import Loop
from coatcheck.products.batches.queries import exports as batch_exports
from coatcheck.products.batches.queries import removal as batch_removal
from coatcheck.products.batches.queries.removal import DeletedBatch, OldRun

_log = logging.getLogger(__name__)
_BATCHES_MAX: Final = 5
_EXPIRED_MAX: Final = 100
_TASKS_MAX: Final = 1_000
_PARTS_MAX: Final = 20
_EXPORTS_MAX: Final = 100
_LOOK_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.02
"""Between two chunks: others have the disk to themselves for a while."""


class BatchRemover(Loop):
    """Each step looks at what is left and takes away some of it: blobs first, then the rows that
    know them, the batch itself last. So every step can be repeated, and no blob is left behind."""

    name: ClassVar[str] = "batch remover"

    def __init__(self, line: Line, notifier: Notifier, blobs: BlobContainer) -> None:
        super().__init__(line)
        self._notifier = notifier
        self._blobs = blobs
        self._after: DeletedBatch | None = None

    async def tick(self) -> float:
        if self._after is None:
            await batch_removal.expire(self._line, _EXPIRED_MAX)
            await batch_removal.close_idle(self._line, _EXPIRED_MAX)
        batches = await batch_removal.deleted(self._line, self._after, _BATCHES_MAX)
        self._after = batches[-1] if len(batches) == _BATCHES_MAX else None
        moved = False
        failed: BlobStoreUnavailable | None = None
        for batch in batches:
            try:
                moved |= await self._step(batch)
            except BlobStoreUnavailable as error:
                failed = error  # it holds up no other
        if failed is not None:
            raise failed
        return _PAUSE_SECONDS if moved or self._after is not None else _LOOK_SECONDS

    async def _step(self, batch: DeletedBatch) -> bool:
        """Take some of a batch away. Whether it can be gone on with at once."""
        if await batch_removal.cancel_runs(self._line, batch):
            self._notifier.say(READY, None)
        runs = await batch_removal.runs(self._line, batch)
        for run in runs:
            if not run.is_quiet:
                return False  # batch_canceller.py is at it
        for run in runs:
            if run.tasks:
                await self._remove_tasks(batch, run)
                return True
        if await self._remove_exports(batch):
            return True
        for run in runs:
            if await self._remove_parts(batch, run):
                return True
        if await batch_removal.finish(self._line, batch):
            _log.info("removed a batch", extra={"batch_id": to_text(batch.uuid)})
            return True
        return False  # what it used is not summed up yet (bookkeeper.py)

    async def _remove_tasks(self, batch: DeletedBatch, run: OldRun) -> None:
        tasks = batch_removal.last_tasks(run, _TASKS_MAX)
        await self._blobs.delete(await batch_removal.task_blobs(self._line, batch.org, tasks))
        crash_point("batch.remove_chunk_deleted")
        await batch_removal.delete_tasks(self._line, batch.org, run, tasks)

    async def _remove_exports(self, batch: DeletedBatch) -> bool:
        exports = await batch_exports.of_batch(self._line, batch.org, batch.uuid, _EXPORTS_MAX)
        await self._blobs.delete([one.blob_key for one in exports if one.blob_key is not None])
        if exports:
            await batch_exports.delete(self._line, exports)
        return bool(exports)

    async def _remove_parts(self, batch: DeletedBatch, run: OldRun) -> bool:
        parts = await batch_removal.parts(self._line, batch.org, run, _PARTS_MAX)
        for part in parts:
            if part.source == "pieces" and part.source_key is not None:
                await delete_pieces(self._blobs, part.source_key)
        await self._blobs.delete([part.upload_key for part in parts if part.upload_key is not None])
        if parts:
            await batch_removal.delete_parts(self._line, batch.org, parts)
        return bool(parts)
