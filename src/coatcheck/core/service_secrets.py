"""The secrets of registered targets: sealed when a service is registered, opened for each call.

They are sealed with a key of the deployment (``COATCHECK_SECRET_KEYS``) and bound to their
organisation and id. Definitions and payloads hold the id alone, so a copy of the database reveals
no secret (docs/adr/0038). The worker opens the secrets at the moment of the call: if they were
replaced after the job was accepted, it sends the new values.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import msgspec

from coatcheck.core.queries import service_secrets
from coatcheck.core.queries import services as service_store
from coatcheck.core.queries.service_secrets import Resealed, Sealed, SecretsKey
from coatcheck.db.batcher import Batcher
from coatcheck.db.connection import Connection
from coatcheck.domain.catalogue import ServiceSpec
from coatcheck.domain.errors import InvalidInput, SealingKeyMissing, SecretsLost
from coatcheck.domain.registration import Concealed, conceal, wanted_secrets
from coatcheck.domain.service_definition import TargetSecrets, decode_secrets, encode_secrets
from coatcheck.sealing import SealBroken, Sealer, UnknownKey
from coatcheck.settings import Settings

_log = logging.getLogger(__name__)

_LABEL: Final = "coatcheck/target-secrets/aes-256-gcm/v1"
KNOWN_SECONDS: Final = 1.0
"""How long an opened text is reused. Replaced secrets are sent after that."""
_ENTRIES_MAX: Final = 10_000
_READ_ROWS_MAX: Final = 500
RESEALED_ROWS_MAX: Final = 100
"""How many rows one statement reseals."""
_SETTING: Final = "COATCHECK_SECRET_KEYS"
_BEFORE_ALL: Final[SecretsKey] = ("", UUID(int=0))


class SecretsSealer:
    """Seals and opens the secrets of targets with the keys of the settings."""

    def __init__(self, settings: Settings) -> None:
        self._sealer = Sealer(settings.secret_keys, _LABEL)

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of the configured keys; the first one seals."""
        return self._sealer.key_ids

    def sealed(self, org: str, concealed: Concealed) -> list[Sealed]:
        """Seal the secrets that were taken out of a document. Raises SealingKeyMissing."""
        if concealed.secrets and not self.key_ids:
            raise SealingKeyMissing(
                "The service has secrets, and this deployment has no key to seal them with: the "
                f"operator has to set {_SETTING}."
            )
        return [
            Sealed(id_, endpoint_id, self._sealer.seal(_place(org, id_), encode_secrets(secrets)))
            for id_, (endpoint_id, secrets) in concealed.secrets.items()
        ]

    def opened(self, org: str, id_: UUID, text: str) -> TargetSecrets:
        """The opened secrets of a row. Raises SealingKeyMissing or SecretsLost."""
        try:
            return decode_secrets(self._sealer.open(_place(org, id_), text))
        except UnknownKey as error:
            raise SealingKeyMissing(
                f"The secrets of the service were sealed with the key {error.key_id}, which is not "
                f"in {_SETTING} of this process."
            ) from None
        except (SealBroken, msgspec.DecodeError):
            raise SecretsLost(
                "The secrets of the service cannot be opened: the stored text was not sealed for "
                "it. Register the service again, with its secrets."
            ) from None

    def resealed(self, org: str, id_: UUID, text: str) -> Resealed:
        """The same secrets, sealed with the first key. Raises SealingKeyMissing or SecretsLost."""
        plain = encode_secrets(self.opened(org, id_, text))
        return Resealed(org, id_, text, self._sealer.seal(_place(org, id_), plain))


@dataclass(slots=True, frozen=True)
class _Entry:
    secrets: TargetSecrets
    until: float


class ServiceSecrets:
    """Opens secrets for callers of targets, at the moment of each call.

    Requests that arrive together share a read. An opened text is cached for a second.
    """

    def __init__(self, settings: Settings, db: Connection) -> None:
        self._sealer = SecretsSealer(settings)
        self._db = db
        self._entries: dict[SecretsKey, _Entry] = {}
        self._reader: Batcher[SecretsKey, str | None] = Batcher(self._read, rows_max=_READ_ROWS_MAX)

    async def close(self) -> None:
        await self._reader.drain()

    async def find(self, org: str, secrets_id: str) -> TargetSecrets:
        """The secrets of that id. Raises SealingKeyMissing, which may pass, or SecretsLost, which
        never does."""
        try:
            key = (org, UUID(secrets_id))
        except ValueError:
            raise SecretsLost("The job's reference to its secrets is malformed.") from None
        known = self._entries.get(key)
        if known is not None and known.until > time.monotonic():
            return known.secrets
        text = await self._reader.ask(key)
        if text is None:
            raise SecretsLost(
                "The secrets of the service are no longer stored: it was removed, or registered "
                "with another address, after the job was accepted."
            )
        secrets = self._sealer.opened(*key, text)
        self._remember(key, secrets)
        return secrets

    def _remember(self, key: SecretsKey, secrets: TargetSecrets) -> None:
        self._entries.pop(key, None)
        self._entries[key] = _Entry(secrets, time.monotonic() + KNOWN_SECONDS)
        while len(self._entries) > _ENTRIES_MAX:
            del self._entries[next(iter(self._entries))]

    async def _read(self, keys: Sequence[SecretsKey]) -> Sequence[str | None]:
        found = await service_secrets.find(self._db, [*set(keys)])
        return [found.get(key) for key in keys]


@dataclass(frozen=True, slots=True)
class SealingState:
    """How many secrets are sealed with the first key, with another configured key, and with keys
    that are not configured; and how many definitions hold secrets in plain text."""

    current: int
    old: int
    locked: Mapping[str, int]
    plain: int

    @property
    def is_done(self) -> bool:
        """Whether the first key opens everything."""
        return not (self.old or self.locked or self.plain)


async def sealing_state(db: Connection, key_ids: Sequence[str]) -> SealingState:
    """The state of sealing with these keys, of which the first seals."""
    counts = await service_secrets.count(db)
    plain = counts.pop("", 0)
    return SealingState(
        current=sum(counts.get(each, 0) for each in key_ids[:1]),
        old=sum(counts.get(each, 0) for each in key_ids[1:]),
        locked={key: number for key, number in counts.items() if key not in key_ids},
        plain=plain,
    )


class Resealer:
    """Seals secrets of older keys, and plain ones, with the first key.

    It works in small steps, so that it does not block registrations or calls.
    """

    def __init__(self, settings: Settings, db: Connection) -> None:
        self.sealer = SecretsSealer(settings)
        self._db = db
        self._unreadable: set[SecretsKey] = set()

    async def state(self) -> SealingState:
        return await sealing_state(self._db, self.sealer.key_ids)

    async def seal_plain(self) -> int:
        """Seal one page of definitions that hold plain secrets. Returns how many it sealed."""
        if not self.sealer.key_ids:
            return 0
        sealed = 0
        for spec, before in await service_store.unsealed(self._db, RESEALED_ROWS_MAX):
            try:
                concealed = conceal(spec.org, spec.versions, await self._stored(spec))
            except InvalidInput:
                _log.error(
                    "the secrets of a service cannot be sealed: it has to be registered again",
                    extra={"org": spec.org, "service": spec.service},
                )
                continue
            sealed += await service_store.seal(
                self._db,
                spec,
                before,
                concealed.versions.values(),
                self.sealer.sealed(spec.org, concealed),
            )
        return sealed

    async def _stored(self, spec: ServiceSpec) -> dict[UUID, TargetSecrets]:
        """The stored secrets of a definition that shows them as hidden: an older server may have
        written it."""
        wanted = [(spec.org, each) for each in wanted_secrets(spec.org, spec.versions)]
        found = await service_secrets.find(self._db, wanted) if wanted else {}
        return {id_: self.sealer.opened(org, id_, text) for (org, id_), text in found.items()}

    async def reseal(self) -> int:
        """Seal all secrets of other keys anew, page by page. Returns how many it sealed."""
        resealed = 0
        for key_id in self.sealer.key_ids[1:]:
            after = _BEFORE_ALL
            while page := await service_secrets.sealed_with(
                self._db, key_id, after, RESEALED_ROWS_MAX
            ):
                after = page[-1][0]
                resealed += await service_secrets.reseal(self._db, [*self._anew(page)])
        return resealed

    def _anew(self, page: Iterable[tuple[SecretsKey, str]]) -> Iterable[Resealed]:
        for (org, id_), text in page:
            try:
                yield self.sealer.resealed(org, id_, text)
            except SecretsLost:
                if (org, id_) not in self._unreadable:
                    self._unreadable.add((org, id_))
                    _log.error(
                        "a sealed secret cannot be opened: its service has to be registered again",
                        extra={"org": org, "secrets_id": str(id_)},
                    )


def _place(org: str, id_: UUID) -> tuple[str, str]:
    return org, str(id_)
