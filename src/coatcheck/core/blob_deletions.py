"""Deletes what jobs left in the blob store, many at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar
from uuid import UUID

from coatcheck.domain.ids import to_text

_log = logging.getLogger(__name__)
_DELETIONS_AT_ONCE_MAX: Final = 8
_DELETION_SECONDS_MAX: Final = 30.0


class OfAJob(Protocol):
    """Something that is a job's."""

    @property
    def job(self) -> UUID: ...


Doomed = TypeVar("Doomed", bound=OfAJob)


class Deletions(Generic[Doomed]):
    """One that cannot be deleted is logged, and does not hold up others: upkeep tries it again.

    ``what`` it is that ``delete`` deletes, for the log.
    """

    def __init__(self, what: str, delete: Callable[[Doomed], Awaitable[None]]) -> None:
        self._what = what
        self._delete = delete
        self._turns = asyncio.Semaphore(_DELETIONS_AT_ONCE_MAX)

    async def of(self, doomed: Sequence[Doomed]) -> list[Doomed]:
        """Delete these. Those that are gone now."""
        deleted = await asyncio.gather(*map(self._try, doomed))
        return [each for each, done in zip(doomed, deleted, strict=True) if done]

    async def _try(self, doomed: Doomed) -> bool:
        async with self._turns:
            try:
                async with asyncio.timeout(_DELETION_SECONDS_MAX):
                    await self._delete(doomed)
            except Exception as error:  # noqa: BLE001 - of whatever kind: it is tried again
                # Its type alone: a store's message may quote its address or what it was sent.
                _log.warning(
                    "%s could not be deleted; it is tried again: %s",
                    self._what,
                    type(error).__name__,
                    extra={"job_id": to_text(doomed.job)},
                )
                return False
        return True
