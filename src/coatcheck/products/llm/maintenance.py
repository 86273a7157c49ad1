"""Deletes the rows of abandoned chats, once no retry may join them any more."""

from __future__ import annotations

from typing import ClassVar, Final

from coatcheck.maintenance.loop import Loop
from coatcheck.products.llm import repository

_ROWS_MAX: Final = 500
_LOOK_SECONDS: Final = 5.0


class AbandonedChatPruner(Loop):
    name: ClassVar[str] = "abandoned chats"

    async def tick(self) -> float:
        deleted = await repository.delete_abandoned(self._db, _ROWS_MAX)
        return 0.0 if deleted == _ROWS_MAX else _LOOK_SECONDS
