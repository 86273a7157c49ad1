"""Keeps the catalogue at what live workers publish, when one falls silent or comes back."""

from __future__ import annotations

import logging
from typing import ClassVar

from coatcheck.core.queries import services
from coatcheck.maintenance.loop import Loop

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0


class CatalogueResolver(Loop):
    name: ClassVar[str] = "catalogue resolver"

    async def tick(self) -> float:
        changed = await services.resolve_published(self._line)
        if changed:
            _log.info(
                "the catalogue follows workers that came or went", extra={"services": changed}
            )
        return _LOOK_SECONDS
