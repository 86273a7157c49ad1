"""The jobs that take lists of tasks in."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from coatcheck.domain.ids import new_id
from coatcheck.domain.job import NewJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.webhooks import INTERNAL
from coatcheck.encoding import encode
from coatcheck.products.batches.model import INGEST_ENDPOINT

_RETRIES: Final = 5
_KEPT_SECONDS: Final = 3_600


def ingest_job(org: str, part: UUID, request_id: str | None) -> NewJob:
    """The engine's job that takes a part in. It is nobody's to read."""
    return NewJob(
        org=org,
        uuid=new_id(),
        lane=Lane.STANDARD.value,
        endpoint=INGEST_ENDPOINT,
        flow="",
        failures_max=_RETRIES,
        payload=encode({"order": {"org": org, "part": part.hex}}),
        request_id=request_id,
        options=encode(
            {
                "keep_completed_seconds": _KEPT_SECONDS,
                "keep_failed_seconds": _KEPT_SECONDS,
                "webhook": INTERNAL,
            }
        ).decode(),
    )
