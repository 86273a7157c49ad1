"""Which services there are, for everybody who has to know it many times a second.

Answers come from a cache that is told of changes (NOTIFY), and that forgets by itself what it was
not told: after half a minute what it knows, after a second what it has not found.
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
from functools import partial
from typing import Final
from uuid import UUID

from coatcheck.core.queries import service_secrets as secrets_store
from coatcheck.core.queries import services as service_store
from coatcheck.core.queries.services import CODE_ORG, ServiceKey
from coatcheck.core.service_secrets import SecretsSealer
from coatcheck.db.batcher import Batcher
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.errors import retried
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
    """Reads what is declared when it starts, and again whenever something of it changed."""

    def __init__(self, db: Connection, learn: Callable[[Sequence[EndpointSpec]], None]) -> None:
        self._db = db
        self._learn = learn
        self._outdated = False
        self._tried = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Learn what is declared; returns once it is known, or after the first failure (it keeps
        trying)."""
        if self._reader is None and not self._tried.is_set():
            self.read_soon()
        await self._tried.wait()

    def heard(self, payload: str) -> None:
        """A notification: these services changed, or (empty) any may have."""
        if not payload or any(word.startswith(f"{CODE_ORG}/") for word in payload.split(",")):
            self.read_soon()

    def read_soon(self) -> None:
        """Something may have changed: read again, once for all who say so meanwhile."""
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
                    _log.info("what code declares could not be read: %s", error)
                    self._outdated = True
                    self._tried.set()
                    await asyncio.sleep(DATABASE_BACKOFF.delay(failures, random.random()))
                    failures += 1
                else:
                    self._learn([spec for service in services for spec in service.endpoints])
        finally:
            self._tried.set()
            self._reader = None


_ENTRIES_MAX: Final = 10_000
_KNOWN_SECONDS: Final = 30.0
_ABSENT_SECONDS: Final = 1.0
_ENDPOINTS_MAX: Final = 50_000
"""Of all services that are remembered: some have one endpoint, some have hundreds."""
_READ_ROWS_MAX: Final = 500
_READ_SERVICES_MAX: Final = 32
"""How many services one statement reads: a definition may have hundreds of kilobytes."""
PAGE_SERVICES_MAX: Final = 200


class UnknownService(Enum):
    """Not in the cache: ask the database."""

    UNKNOWN = "unknown"


UNKNOWN: Final = UnknownService.UNKNOWN


@dataclass(slots=True, frozen=True)
class _CatalogueEntry:
    spec: ServiceSpec | None
    until: float

    @property
    def endpoints(self) -> int:
        """What it takes up. A service of code is everybody's, and in memory once."""
        if self.spec is None or self.spec.org == CODE_ORG:
            return 0
        return sum(len(version.endpoints) for version in self.spec.versions.values())


class Catalogue:
    """The services that each organisation can call: its own first, then those of code.

    Its connection is made when first needed. ``heard`` and ``forget_all`` are for whoever listens
    on the SERVICES channel.
    """

    def __init__(self, settings: Settings) -> None:
        self._services_max = settings.services_max
        self._db = Connection(settings.database_url, name="catalogue", server_settings=PINNED_PLANS)
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
        await self._db.close()

    # Finding

    def find_now(self, org: str, service: str) -> ServiceSpec | UnknownService | None:
        """What ``find`` would answer, if it is known without asking the database."""
        entry = self._entries.get((org, service))
        if entry is None or entry.until < time.monotonic():
            return UNKNOWN
        return entry.spec

    async def find(self, org: str, service: str) -> ServiceSpec | None:
        """The service of that name that the organisation can call."""
        known = self.find_now(org, service)
        if not isinstance(known, UnknownService):
            return known
        if not is_service_name(service) or "\0" in org:
            return None  # nothing is called so, and the cache is not for guesses
        return await self._reader.ask((org, service))

    async def list(
        self,
        org: str,
        workspace: str | None = None,
        *,
        after: str = "",
        limit: int = PAGE_SERVICES_MAX,
    ) -> Sequence[ServiceSummary]:
        """The services that the organisation can call, by name; of one workspace, if it is given.

        Those of code are in the workspace ``default``. So many at most, of those whose names come
        after ``after``. Asks the database.
        """
        if workspace is not None and "\0" in workspace:
            return []
        return await retried(
            lambda: service_store.list_services(self._db, org, workspace, after=after, limit=limit)
        )

    # Registering

    async def put(
        self, org: str, workspace: str, service: str, definition: ServiceDefinition
    ) -> ServiceSpec:
        """Register a service with http upstreams, or register it anew, whole.

        The URLs are the caller's to check. Raises InvalidParameter for the name, InvalidInput for
        the definition, ServiceNameTaken if code or another workspace has a service of that name,
        TooManyServices if the organisation has as many as it may have, SealingKeyMissing if it has
        secrets that cannot be sealed, or kept, with the keys there are.
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
            put = partial(
                service_store.put,
                *(self._db, org, workspace, service, concealed.versions.values(), most),
                sealed=sealed,
                kept=kept,
            )
            with suppress(service_store.SecretsChanged):
                spec = await retried(put)
                break
        self._forget((org, service))
        if spec is None:
            is_new = await self._known_by_name(org, service) is None
            if is_new and await self._count(org) >= most:
                raise TooManyServices(most)
            raise ServiceNameTaken(f"there is another service named {service!r}")
        return spec

    async def delete(self, org: str, service: str, workspace: str | None = None) -> bool:
        """Take an organisation's own service away. Whether there was one (in the workspace)."""
        if not is_service_name(service) or "\0" in (workspace or ""):
            return False
        deleted = await retried(lambda: service_store.delete(self._db, org, service, workspace))
        self._forget((org, service))
        return deleted

    async def _known_by_name(self, org: str, service: str) -> ServiceSpec | None:
        key = (org, service)
        return (await retried(lambda: service_store.find(self._db, [key]))).get(key)

    async def _count(self, org: str) -> int:
        return await retried(lambda: service_store.count(self._db, org))

    async def _stored_secrets(
        self, org: str, versions: Mapping[int, VersionSpec]
    ) -> tuple[dict[UUID, TargetSecrets], dict[UUID, str]]:
        """The secrets that a document shows as hidden, and all that is stored of them. Those that
        are not there are left out, and so are those that cannot be opened: they have to be given
        again."""
        wanted = [(org, each) for each in wanted_secrets(org, versions)]
        if not wanted:
            return {}, {}
        found = await retried(lambda: secrets_store.find(self._db, wanted))
        known: dict[UUID, TargetSecrets] = {}
        for (_, secrets_id), text in found.items():
            with suppress(SecretsLost):
                known[secrets_id] = self._sealer.opened(org, secrets_id, text)
        return known, {secrets_id: text for (_, secrets_id), text in found.items()}

    # What is heard

    def heard(self, payload: str) -> None:
        """A notification: these services changed, or (empty) any may have."""
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
        """Something may have been said that was not heard."""
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
        """Of all organisations: code's service is everybody's."""
        self._changes_heard += 1
        for key in [key for key in self._entries if key[1] == service]:
            self._drop(key)

    async def _read(self, keys: Sequence[ServiceKey]) -> Sequence[ServiceSpec | None]:
        changes_heard = self._changes_heard
        found: dict[ServiceKey, ServiceSpec] = {}
        wanted = list(dict.fromkeys(keys))
        for at in range(0, len(wanted), _READ_SERVICES_MAX):
            some = wanted[at : at + _READ_SERVICES_MAX]
            read = await retried(partial(service_store.find, self._db, some))
            found |= {key: self._shared(spec) for key, spec in read.items()}
        # A change that was heard meanwhile may be newer than what was read.
        if changes_heard == self._changes_heard:
            self._remember(keys, found)
        return [found.get(key) for key in keys]

    def _shared(self, spec: ServiceSpec) -> ServiceSpec:
        """One object for a service of code, however many organisations call it."""
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
            # Put last: what was learned longest ago goes first when there is no more room.
            self._drop(key)
            lasts = _ABSENT_SECONDS if spec is None else _KNOWN_SECONDS
            entry = _CatalogueEntry(spec, now + lasts)
            self._entries[key] = entry
            self._endpoints += entry.endpoints
        while len(self._entries) > _ENTRIES_MAX or self._endpoints > _ENDPOINTS_MAX:
            self._drop(next(iter(self._entries)))
