"""Reads and redrives dead letters, which are lists whose ingest failed, and reads invalid lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from coatcheck.db.connection import Connection
from coatcheck.db.errors import retried
from coatcheck.db.notifications import CHANGED, READY, Notifier
from coatcheck.domain.errors import InvalidParameter, NotFound
from coatcheck.domain.ids import InvalidId, from_text, new_id
from coatcheck.domain.job import NewJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.webhooks import INTERNAL
from coatcheck.encoding import encode
from coatcheck.products.batches.model import (
    INGEST_ENDPOINT,
    BadLine,
    BatchView,
    FailedPart,
    RunView,
)
from coatcheck.products.batches.queries import ingest

_RETRIES: Final = 5
_KEPT_SECONDS: Final = 3_600


def ingest_job(org: str, part: UUID, request_id: str | None) -> NewJob:
    """The internal job that ingests a part. No caller can read it."""
    return NewJob(
        org=org,
        uuid=new_id(),
        lane=Lane.STANDARD.value,
        endpoint=INGEST_ENDPOINT,
        queue_key="",
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


_PAGE_ROWS_MAX: Final = 200


class DeadLetterRepository:
    """Reads the parts whose ingest failed, and retries it."""

    def __init__(self, db: Connection, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier

    async def page(
        self, org: str, *, owner: str | None, after: str | None = None, limit: int = 50
    ) -> Sequence[FailedPart]:
        """List parts whose ingest failed, newest first; of one owner's batches, or of all (None).

        ``after`` is the last id of the previous page.
        """
        _check_limit(limit)
        older_than = None if after is None else _cursor(after)
        return await retried(
            lambda: ingest.dead_letters(self._db, org, owner=owner, after=older_than, limit=limit)
        )

    async def redrive(
        self, org: str, letter_id: str, owner: str | None, *, request_id: str | None = None
    ) -> FailedPart:
        """Retry the ingest of a part, from where it stopped. Raises NotFound.

        ``owner`` must be the owner of its batch; None allows every owner.
        """
        try:
            part = from_text(letter_id)
        except InvalidId as error:
            raise NotFound("there is no such dead letter") from error
        job = ingest_job(org, part, request_id)
        letter = await retried(lambda: ingest.redrive(self._db, org, part, owner, job))
        if letter is None:
            raise NotFound("there is no such dead letter")
        self._notifier.notify(READY, [INGEST_ENDPOINT])
        self._notifier.notify(CHANGED, [letter.batch.hex])
        return letter

    async def bad_lines(
        self, view: BatchView, run: RunView, *, after: str | None = None, limit: int = 50
    ) -> tuple[Sequence[BadLine], str | None]:
        """The invalid lines of a run's lists, in order, and the cursor of the next page.

        The first 1,000 of each list are stored. In a run with several lists, each counts its own
        lines.
        """
        _check_limit(limit)
        position, line = (0, 0) if after is None else _place(after)
        found = await retried(
            lambda: ingest.bad_lines(self._db, view.org, run.uuid, (position, line), limit + 1)
        )
        page = found[:limit]
        following = f"{page[-1][0]}.{page[-1][1].line}" if len(found) > limit else None
        return [bad for _, bad in page], following


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= _PAGE_ROWS_MAX:
        raise InvalidParameter("limit", f"must be 1 to {_PAGE_ROWS_MAX}")


def _cursor(text: str) -> UUID:
    try:
        return from_text(text)
    except InvalidId as error:
        raise InvalidParameter("cursor", "must be the `next` of a page of this list") from error


def _place(cursor: str) -> tuple[int, int]:
    position, _, line = cursor.partition(".")
    digits = position.isascii() and position.isdigit() and line.isascii() and line.isdigit()
    if not digits or len(position) > 9 or len(line) > 18:
        raise InvalidParameter("cursor", "must be the `next` of a page of this list")
    return int(position), int(line)
