"""Updates the service catalogue for live workers, and seals its secrets with the current key."""

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
_RESOLVE_TICK_SECONDS = 1.0


class CatalogueResolver(Loop):
    """Updates the catalogue when workers start or stop publishing services."""

    name: ClassVar[str] = "catalogue resolver"

    async def tick(self) -> float:
        changed = await services.resolve_published(self._db)
        if changed:
            _log.info(
                "updated the catalogue: workers started or stopped", extra={"services": changed}
            )
        return _RESOLVE_TICK_SECONDS


RETIRED_SECONDS: Final = 300.0
"""How long the secrets of a removed service stay, even if no job needs them: a server that has not
heard of the removal may still accept jobs."""
_ROWS_MAX: Final = 200
_MORE_SECONDS: Final = 1.0
_SECRET_TICK_SECONDS: Final = 30.0


class SecretRotation(Loop):
    """Seals plain secrets, reseals those of an older key, and deletes those of removed services."""

    name: ClassVar[str] = "secret rotation"

    def __init__(self, db: Connection, settings: Settings) -> None:
        super().__init__(db)
        self._resealer = Resealer(settings, db)
        self._logged: SealingState | None = None
        self._pruned_to: service_secrets.Retired | None = None

    async def tick(self) -> float:
        sealed = await self._resealer.seal_plain()
        resealed = await self._resealer.reseal()
        if sealed or resealed:
            _log.info(
                "sealed secrets of services with the current key",
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
        self._log_problems(await self._resealer.state())
        return _MORE_SECONDS if sealed or pruned.last is not None else _SECRET_TICK_SECONDS

    def _log_problems(self, state: SealingState) -> None:
        """Log missing keys and plain secrets, once until they change."""
        if state == self._logged:
            return
        self._logged = state
        for key_id, secrets in state.locked.items():
            _log.error(
                "a key is missing in COATCHECK_SECRET_KEYS: jobs that need its secrets wait",
                extra={"key_id": key_id, "secrets": secrets},
            )
        if state.plain:
            _log.error(
                "secrets of services are stored in plain text: set COATCHECK_SECRET_KEYS",
                extra={"definitions": state.plain},
            )
