"""A deployment with batches whose lists are staged, and ingested when the test says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import asyncpg

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import upload_key
from coatcheck.blobs.pieces import store_pieces
from coatcheck.core.queries import uploads
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.notifications import Notifier
from coatcheck.domain.ids import new_id, to_text
from coatcheck.products.batches.ingest import Ingester, IngestReport, IngestRequest
from coatcheck.products.batches.model import BatchView, NewBatch, NewPart, list_key
from coatcheck.products.batches.repository import BatchRepository
from tests.db.edge_guard import unguarded
from tests.db.rows import recorded
from tests.deployment import Deployment

ORG = "acme"
OWNER = "dev"
ENDPOINT = "demo.post__work"
DEPLOYMENT = UUID(int=7)


def new_batch(**changes: Any) -> NewBatch:
    """A closed batch of the service ``demo``, with nothing special about it."""
    plain = NewBatch(
        org=ORG,
        uuid=new_id(),
        run=new_id(),
        owner=OWNER,
        service="demo",
        service_endpoint="/work",
        endpoint=ENDPOINT,
        usage_queue_key="",
        lane="bulk",
        failures_max=3,
        is_open=False,
        payload_prefix=b"",
        payload_suffix=b"",
        concurrency=None,
        rate_per_second=None,
        rate_key=None,
        rate_key_per_second=None,
        webhook_url=None,
        webhook_events=(),
        metadata=None,
        keep_seconds=86_400,
        idempotency_key=None,
        fingerprint=None,
        request_id="req-1",
    )
    return replace(plain, **changes)


class IngestDeployment(Deployment):
    """A deployment without a server or a worker: the test says when a list is ingested."""

    def __init__(self, dsn: str, folder: Path, **settings: Any) -> None:
        super().__init__(dsn, folder, servers=0, **settings)
        self.blobs = BlobContainer.open(self.settings.blob_url)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.batches = self.engine.extension(BatchRepository)
        self.ingest_connection = Connection(
            self.dsn, name="tests ingest", server_settings=PINNED_PLANS
        )
        notifying = Connection(self.dsn, name="tests notify")
        self.notifier = Notifier(notifying)
        self._closing.push_async_callback(self.ingest_connection.close)
        self._closing.push_async_callback(notifying.close)
        self._closing.push_async_callback(self.notifier.drain)
        return self

    # Submitting

    async def staged(self, batch: UUID, data: bytes, *, piece_bytes: int | None = None) -> NewPart:
        """A list as the body of a request would be staged: in pieces."""
        part = new_id()

        async def body() -> AsyncIterator[bytes]:
            yield data

        more = {} if piece_bytes is None else {"piece_bytes": piece_bytes}
        stored = await store_pieces(self.blobs, list_key(DEPLOYMENT, batch, part), body(), **more)
        return NewPart(
            part,
            "pieces",
            source_key=stored.key,
            source_pieces=stored.pieces,
            source_bytes=stored.size,
        )

    async def uploaded(self, data: bytes) -> NewPart:
        """A list as a caller would have put it to a signed URL."""
        upload = new_id()
        key = upload_key(DEPLOYMENT, upload)
        await uploads.create(
            self.ingest_connection,
            org=ORG,
            upload_id=upload,
            owner=OWNER,
            blob_key=key,
            life_seconds=3600,
        )
        await self.blobs.put(key, data)
        return NewPart(new_id(), "upload", source_key=key, source_bytes=len(data), upload=upload)

    async def create(self, data: bytes, **changes: Any) -> tuple[NewBatch, NewPart]:
        """A batch whose list waits to be ingested."""
        new = new_batch(**changes)
        part = await self.staged(new.uuid, data)
        await self.batches.create(new, part)
        return new, part

    # Ingesting

    async def ingest(self, part: NewPart | UUID) -> IngestReport:
        """Do what a worker does for the part's job."""
        uuid = part if isinstance(part, UUID) else part.uuid
        return await self.ingester().ingest(IngestRequest(ORG, uuid))

    def ingester(self) -> Ingester:
        return Ingester(self.ingest_connection, self.blobs, self.notifier)

    # Reading

    async def view(self, new: NewBatch) -> BatchView:
        return await self.batches.get(to_text(new.uuid), org=ORG)

    async def tasks(self, run: UUID) -> list[asyncpg.Record]:
        """All tasks of a run, in order."""
        return await self.sql.fetch("SELECT * FROM jobs WHERE run_id = $1 ORDER BY task_index", run)

    async def part_row(self, part: NewPart | UUID) -> asyncpg.Record:
        uuid = part if isinstance(part, UUID) else part.uuid
        row = await self.sql.fetchrow("SELECT * FROM batch_parts WHERE id = $1", uuid)
        assert row is not None
        return row

    async def run_row(self, run: UUID) -> asyncpg.Record:
        row = await self.sql.fetchrow("SELECT * FROM runs WHERE id = $1", run)
        assert row is not None
        return row

    async def end_tasks(self, run: UUID, indexes: list[int], state: str, code: str | None) -> None:
        """Let tasks have ended, without a worker."""
        async with unguarded(self.sql):
            await self.sql.execute(
                recorded("""
                UPDATE jobs SET state = $3::text::job_state, finished_at = now(),
                                expires_at = 'infinity', error_code = $4
                WHERE run_id = $1 AND task_index = ANY ($2)
                """),
                run,
                indexes,
                state,
                code,
            )

    async def staged_blobs(self) -> list[str]:
        """The keys of all lists that are in the container."""
        return [
            key
            for prefix in ("lists", "uploads")
            async for keys in self.blobs.keys_under(prefix)
            for key in keys
        ]
