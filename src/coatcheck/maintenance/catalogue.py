"""Keeps the catalogue in step with live workers, and its secrets sealed with the current key."""

from __future__ import annotations

import logging
from typing import ClassVar, Final

from coatcheck.core.queries import service_secrets, services
from coatcheck.core.service_secrets import Resealer, SealingState
from coatcheck.db.connection import Connection
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.maintenance.loop import Loop
from coatcheck.settings import Settings

_log = logging.getLogger(__name__)
_RESOLVE_LOOK_SECONDS = 1.0


class CatalogueResolver(Loop):
    name: ClassVar[str] = "catalogue resolver"

    async def tick(self) -> float:
        changed = await services.resolve_published(self._db)
        if changed:
            _log.info(
                "the catalogue follows workers that came or went", extra={"services": changed}
            )
        return _RESOLVE_LOOK_SECONDS


RETIRED_SECONDS: Final = 300.0
"""For so long after a service was removed its secrets stay, whether jobs need them or not: a server
that was not told may still accept some."""
_ROWS_MAX: Final = 200
_MORE_SECONDS: Final = 1.0
_SECRET_LOOK_SECONDS: Final = 30.0


class SecretRotation(Loop):
    """Seals what is plain, reseals what an older key has sealed, removes what is retired."""

    name: ClassVar[str] = "secrets keeper"

    def __init__(self, db: Connection, settings: Settings) -> None:
        super().__init__(db)
        self._resealer = Resealer(settings, db)
        self._said: SealingState | None = None
        self._pruned_to: service_secrets.Retired | None = None

    async def tick(self) -> float:
        sealed = await self._resealer.seal_plain()
        resealed = await self._resealer.reseal()
        if sealed or resealed:
            _log.info(
                "secrets of services were sealed with the present key",
                extra={"definitions": sealed, "secrets": resealed},
            )
        pruned = await service_secrets.prune(
            self._db,
            UPSTREAM_ENDPOINT,
            grace_seconds=RETIRED_SECONDS,
            rows_max=_ROWS_MAX,
            after=self._pruned_to,
        )
        self._pruned_to = pruned.last
        self._say_what_is_missing(await self._resealer.state())
        return _MORE_SECONDS if sealed or pruned.last is not None else _SECRET_LOOK_SECONDS

    def _say_what_is_missing(self, state: SealingState) -> None:
        """Once, until it changes."""
        if state == self._said:
            return
        self._said = state
        for key_id, secrets in state.locked.items():
            _log.error(
                "a key is missing in COATCHECK_SECRET_KEYS: jobs that need what it has sealed wait",
                extra={"key_id": key_id, "secrets": secrets},
            )
        if state.plain:
            _log.error(
                "secrets of services are stored as they are: set COATCHECK_SECRET_KEYS",
                extra={"definitions": state.plain},
            )
