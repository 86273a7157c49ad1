"""Lists that could not be taken in, and the lines of lists that are no tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from coatcheck.db.channels import CHANGED, READY
from coatcheck.db.connection import Line
from coatcheck.db.errors import retried
from coatcheck.db.notify import Notifier
from coatcheck.domain.errors import InvalidParameter, NotFound
from coatcheck.domain.ids import InvalidId, from_text
from coatcheck.products.batches.ingest_jobs import ingest_job
from coatcheck.products.batches.model import (
    INGEST_ENDPOINT,
    BadLine,
    BatchView,
    DeadLetter,
    RunView,
)
from coatcheck.products.batches.queries import ingest as store

_PAGE_ROWS_MAX: Final = 200


class DeadLetters:
    """Shows what could not be taken in, and has it taken in after all."""

    def __init__(self, line: Line, notifier: Notifier) -> None:
        self._line = line
        self._notifier = notifier

    async def page(
        self, org: str, *, owner: str | None, after: str | None = None, limit: int = 50
    ) -> Sequence[DeadLetter]:
        """Parts of batches that could not be taken in, newest first; of one owner, or of all.

        ``after`` is the last id of the page before.
        """
        _check_limit(limit)
        older_than = None if after is None else _cursor(after)
        return await retried(
            lambda: store.dead_letters(self._line, org, owner=owner, after=older_than, limit=limit)
        )

    async def redrive(
        self, org: str, letter_id: str, owner: str | None, *, request_id: str | None = None
    ) -> DeadLetter:
        """Have a part taken in after all, from where it stopped. Raises NotFound.

        ``owner`` is whose batch it must be; None for anybody's.
        """
        try:
            part = from_text(letter_id)
        except InvalidId as error:
            raise NotFound("there is no such dead letter") from error
        job = ingest_job(org, part, request_id)
        letter = await retried(lambda: store.redrive(self._line, org, part, owner, job))
        if letter is None:
            raise NotFound("there is no such dead letter")
        self._notifier.say(READY, [INGEST_ENDPOINT])
        self._notifier.say(CHANGED, [letter.batch.hex])
        return letter

    async def bad_lines(
        self, view: BatchView, run: RunView, *, after: str | None = None, limit: int = 50
    ) -> tuple[Sequence[BadLine], str | None]:
        """The lines of a run's lists that are no tasks, in order, and the cursor of the next page.

        Of each list the first 1,000. A run that was given several lists counts the lines of each.
        """
        _check_limit(limit)
        position, line = (0, 0) if after is None else _place(after)
        found = await retried(
            lambda: store.bad_lines(self._line, view.org, run.uuid, (position, line), limit + 1)
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
        raise InvalidParameter("cursor", "is none that was given out") from error


def _place(cursor: str) -> tuple[int, int]:
    position, _, line = cursor.partition(".")
    digits = position.isascii() and position.isdigit() and line.isascii() and line.isdigit()
    if not digits or len(position) > 9 or len(line) > 18:
        raise InvalidParameter("cursor", "is none that was given out")
    return int(position), int(line)
