"""The catalogue of services: which ones an organisation can call. Read for nearly every request.

Lookups are answered from a cache. Notifications (NOTIFY) drop entries that have changed. Should one
be lost, an entry expires after 30 seconds, and the note that a name does not exist after one.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final
from uuid import UUID

from coatcheck.core.queries import service_secrets as secrets_store
from coatcheck.core.queries import services as service_store
from coatcheck.core.queries.services import CODE_ORG, ServiceKey
from coatcheck.core.service_secrets import SecretsSealer
from coatcheck.db.batcher import Batcher
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.database import Database
from coatcheck.domain.catalogue import (
    EndpointSpec,
    ServiceDefinition,
    ServiceSpec,
    ServiceSummary,
    VersionSpec,
)
from coatcheck.domain.errors import (
    DatabaseUnavailable,
    InvalidParameter,
    OutcomeUnknown,
    SecretsLost,
    ServiceNameTaken,
    TooManyServices,
)
from coatcheck.domain.registration import check_service_name, conceal, versions_of, wanted_secrets
from coatcheck.domain.retry import DATABASE_BACKOFF
from coatcheck.domain.service_definition import TargetSecrets, is_service_name
from coatcheck.installed import reserved_services
from coatcheck.settings import Settings

_log = logging.getLogger(__name__)


class Declarations:
    """Keeps the endpoints that code declares known: reads them at start and after each change."""

    def __init__(self, db: Connection, learn: Callable[[Sequence[EndpointSpec]], None]) -> None:
        self._db = db
        self._learn = learn
        self._outdated = False
        self._tried = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the declarations. Returns once they are known, or after the first failure: then it
        goes on trying."""
        if self._reader is None and not self._tried.is_set():
            self.read_soon()
        await self._tried.wait()

    def on_notification(self, payload: str) -> None:
        """Handle a notification: these services changed, or (if empty) any may have."""
        if not payload or any(word.startswith(f"{CODE_ORG}/") for word in payload.split(",")):
            self.read_soon()

    def read_soon(self) -> None:
        """Read the declarations again. Calls during a read share the next one."""
        self._outdated = True
        if self._reader is None:
            self._reader = asyncio.create_task(self._read_while_outdated())

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def _read_while_outdated(self) -> None:
        try:
            failures = 0
            while self._outdated:
                self._outdated = False
                try:
                    services = await service_store.list_code(self._db)
                except (DatabaseUnavailable, OutcomeUnknown) as error:
                    _log.info("the declared endpoints could not be read: %s", error)
                    self._outdated = True
                    self._tried.set()
                    await asyncio.sleep(DATABASE_BACKOFF.delay(failures, random.random()))
                    failures += 1
                else:
                    self._learn([spec for service in services for spec in service.endpoints])
        finally:
            self._tried.set()
            self._reader = None


ENTRIES_MAX: Final = 10_000
KNOWN_SECONDS: Final = 30.0
ABSENT_SECONDS: Final = 1.0
ENDPOINTS_MAX: Final = 50_000
"""The bound on all cached services together: some have one endpoint, some have hundreds."""
_READ_ROWS_MAX: Final = 500
READ_SERVICES_MAX: Final = 32
"""How many services one statement reads: a definition may have hundreds of kilobytes."""
PAGE_SERVICES_MAX: Final = 200


class UnknownService(Enum):
    """The cache does not know the service: ask the database."""

    UNKNOWN = "unknown"


UNKNOWN: Final = UnknownService.UNKNOWN


@dataclass(slots=True, frozen=True)
class _CatalogueEntry:
    spec: ServiceSpec | None
    until: float

    @property
    def endpoints(self) -> int:
        """How much of the bound it uses. A service of code is in memory once, for everybody."""
        if self.spec is None or self.spec.org == CODE_ORG:
            return 0
        return sum(len(version.endpoints) for version in self.spec.versions.values())


class Catalogue:
    """Finds, lists and registers services. An organisation's own service goes before code's.

    A listener on the SERVICES channel calls ``on_notification`` and
    ``forget_all``.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._services_max = settings.services_max
        self._db = database.pooled("catalogue", server_settings=PINNED_PLANS)
        self._sealer = SecretsSealer(settings)
        self._entries: dict[ServiceKey, _CatalogueEntry] = {}
        self._endpoints = 0
        self._of_code: dict[str, ServiceSpec] = {}
        self._changes_heard = 0
        self._reader: Batcher[ServiceKey, ServiceSpec | None] = Batcher(
            self._read, rows_max=_READ_ROWS_MAX
        )

    async def close(self) -> None:
        await self._reader.drain()

    # Finding

    def find_now(self, org: str, service: str) -> ServiceSpec | UnknownService | None:
        """The answer of ``find``, if the cache has it."""
        entry = self._entries.get((org, service))
        if entry is None or entry.until < time.monotonic():
            return UNKNOWN
        return entry.spec

    async def find(self, org: str, service: str) -> ServiceSpec | None:
        """The service of that name that the organisation can call; None if there is none."""
        known = self.find_now(org, service)
        if not isinstance(known, UnknownService):
            return known
        if not is_service_name(service) or "\0" in org:
            return None  # no service can have this name, and guesses must not fill the cache
        return await self._reader.ask((org, service))

    async def list(
        self,
        org: str,
        workspace: str | None = None,
        *,
        after: str = "",
        limit: int = PAGE_SERVICES_MAX,
    ) -> Sequence[ServiceSummary]:
        """A page of the services that the organisation can call, by name, from the database.

        With ``workspace``, only those in it; services of code are in ``default``. The page has at
        most ``limit`` services and begins after the name ``after``.
        """
        if workspace is not None and "\0" in workspace:
            return []
        return await service_store.list_services(self._db, org, workspace, after=after, limit=limit)

    # Registration

    async def put(
        self, org: str, workspace: str, service: str, definition: ServiceDefinition
    ) -> ServiceSpec:
        """Register a service with http upstreams, or replace its whole registration.

        The caller checks the URLs. Raises InvalidParameter for the name, InvalidInput for the
        definition, ServiceNameTaken if code or another workspace has a service of that name,
        TooManyServices if the organisation is at its limit, SealingKeyMissing if the configured
        keys cannot seal its secrets, or cannot open those that it keeps.
        """
        check_service_name(service, reserved_services())
        if "\0" in workspace:
            raise InvalidParameter("workspace", "has a NUL", "path")
        versions = versions_of(service, definition)
        most = self._services_max
        while True:
            known, kept = await self._stored_secrets(org, versions)
            concealed = conceal(org, versions, known)
            sealed = self._sealer.sealed(org, concealed)
            with suppress(service_store.SecretsChanged):
                spec = await service_store.put(
                    *(self._db, org, workspace, service, concealed.versions.values(), most),
                    sealed=sealed,
                    kept=kept,
                )
                break
        self._forget((org, service))
        if spec is None:
            is_new = await self._known_by_name(org, service) is None
            if is_new and await self._count(org) >= most:
                raise TooManyServices(most)
            raise ServiceNameTaken(f"there is another service named {service!r}")
        return spec

    async def delete(self, org: str, service: str, workspace: str | None = None) -> bool:
        """Delete an organisation's own service. Returns whether it existed (in the workspace)."""
        if not is_service_name(service) or "\0" in (workspace or ""):
            return False
        deleted = await service_store.delete(self._db, org, service, workspace)
        self._forget((org, service))
        return deleted

    async def _known_by_name(self, org: str, service: str) -> ServiceSpec | None:
        key = (org, service)
        return (await service_store.find(self._db, [key])).get(key)

    async def _count(self, org: str) -> int:
        return await service_store.count(self._db, org)

    async def _stored_secrets(
        self, org: str, versions: Mapping[int, VersionSpec]
    ) -> tuple[dict[UUID, TargetSecrets], dict[UUID, str]]:
        """The secrets that a document shows as hidden, opened, and the same as stored. Leaves out
        those that are not stored or cannot be opened: the caller has to provide them again."""
        wanted = [(org, each) for each in wanted_secrets(org, versions)]
        if not wanted:
            return {}, {}
        found = await secrets_store.find(self._db, wanted)
        known: dict[UUID, TargetSecrets] = {}
        for (_, secrets_id), text in found.items():
            with suppress(SecretsLost):
                known[secrets_id] = self._sealer.opened(org, secrets_id, text)
        return known, {secrets_id: text for (_, secrets_id), text in found.items()}

    # Notifications

    def on_notification(self, payload: str) -> None:
        """Handle a notification: these services changed, or (if empty) any may have."""
        for word in payload.split(","):
            org, slash, service = word.partition("/")
            if not slash:
                self.forget_all()
                return
            if org == CODE_ORG:
                self._forget_name(service)
            else:
                self._forget((org, service))

    def forget_all(self) -> None:
        """Drop the whole cache: a notification may have been lost."""
        self._changes_heard += 1
        self._entries.clear()
        self._endpoints = 0

    def _forget(self, key: ServiceKey) -> None:
        self._changes_heard += 1
        self._drop(key)

    def _drop(self, key: ServiceKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._endpoints -= entry.endpoints

    def _forget_name(self, service: str) -> None:
        """Drop a name for all organisations, because code's service is everybody's."""
        self._changes_heard += 1
        for key in [key for key in self._entries if key[1] == service]:
            self._drop(key)

    async def _read(self, keys: Sequence[ServiceKey]) -> Sequence[ServiceSpec | None]:
        changes_heard = self._changes_heard
        found: dict[ServiceKey, ServiceSpec] = {}
        wanted = list(dict.fromkeys(keys))
        for at in range(0, len(wanted), READ_SERVICES_MAX):
            some = wanted[at : at + READ_SERVICES_MAX]
            read = await service_store.find(self._db, some)
            found |= {key: self._shared(spec) for key, spec in read.items()}
        # A change that was notified during the read may be newer than its result.
        if changes_heard == self._changes_heard:
            self._remember(keys, found)
        return [found.get(key) for key in keys]

    def _shared(self, spec: ServiceSpec) -> ServiceSpec:
        """One object for a service of code, shared by all organisations that call it."""
        if spec.org != CODE_ORG:
            return spec
        known = self._of_code.get(spec.service)
        if known is None or known.updated_at != spec.updated_at:
            self._of_code[spec.service] = known = spec
        return known

    def _remember(self, keys: Sequence[ServiceKey], found: dict[ServiceKey, ServiceSpec]) -> None:
        now = time.monotonic()
        for key in keys:
            spec = found.get(key)
            # Inserted last: the oldest entries are evicted first.
            self._drop(key)
            lasts = ABSENT_SECONDS if spec is None else KNOWN_SECONDS
            entry = _CatalogueEntry(spec, now + lasts)
            self._entries[key] = entry
            self._endpoints += entry.endpoints
        while len(self._entries) > ENTRIES_MAX or self._endpoints > ENDPOINTS_MAX:
            self._drop(next(iter(self._entries)))
