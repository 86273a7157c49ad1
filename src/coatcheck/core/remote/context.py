"""What all who deal with remote work share: a line to the database, the remotes, the keepers."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from coatcheck.blobs import BlobContainer
from coatcheck.core.queries import remote_calls
from coatcheck.core.queries.remote_calls import IdleCall, PutBack, TakenCall
from coatcheck.core.remote.result_store import ResultOf, ResultStore
from coatcheck.core.service_secrets import ServiceSecrets
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.errors import retried
from coatcheck.db.notifications import CHANGED, Notifier
from coatcheck.domain.catalogue import remote_address
from coatcheck.domain.errors import SecretsLost
from coatcheck.domain.ids import to_text
from coatcheck.domain.remote_work import (
    Destination,
    OperatorRemote,
    decode_destination,
    encode_destination,
    seconds_after_faults,
    seconds_to_next_look,
)
from coatcheck.domain.service_definition import TargetSecrets, encode_secrets
from coatcheck.remotes import Remote, Remotes
from coatcheck.remotes.errors import (
    RESULT_TOO_SLOW,
    RemoteError,
    RemoteFaulty,
    RemoteMisdefined,
    RemoteRefused,
    RemoteUnreachable,
)
from coatcheck.settings import Settings
from coatcheck.telemetry.job_stats import job_stats_of

AWAY_SECONDS_MIN: Final = 1.0
UNASKED_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class RemoteRetryPolicy:
    """``faults_max``: answers in a row without sense, after which an attempt is over.
    ``unknown_max``: how often in a row a remote may not know of the work. A proxy without a route
    says so for a moment, and so does a queue that is slow to learn of it."""

    faults_max: int = 8
    unknown_max: int = 3

    def bears_silence(self, call: TakenCall, error: RemoteError) -> bool:
        """Whether to ask again how it stands, rather than end the attempt. Who is away is waited
        for; who refuses may let us in again, once a credential has been changed on both sides."""
        return _waits(call, error) or call.faults + 1 < self.faults_max

    def bears_ignorance(self, call: TakenCall) -> bool:
        """Whether to ask again, although the remote does not know of the work."""
        return call.faults + 1 < self.unknown_max

    def bears_no_result(self, call: TakenCall, error: RemoteError) -> bool:
        """Whether to fetch the result again."""
        if _waits(call, error):
            return True
        if isinstance(error, RemoteRefused):
            return False
        # One that trickles, or comes after its time, has held a turn for long enough.
        hurried = call.is_overdue or error.code == RESULT_TOO_SLOW
        return call.faults + 1 < (min(2, self.faults_max) if hurried else self.faults_max)

    def after_fault(self, call: TakenCall, error: RemoteError | None = None) -> PutBack:
        """Look again later. That a remote is away is no fault of its answers: it counts as one at
        most, so that whoever comes back with a stutter is not given up for it."""
        if error is not None and _waits(call, error):
            pause = max(AWAY_SECONDS_MIN, self.later(call).seconds)
            return PutBack(call, pause, max(1, call.faults))
        faults = call.faults + 1
        asked_for = error.retry_after if isinstance(error, RemoteFaulty) else None
        return PutBack(call, seconds_after_faults(faults, asked_for), faults)

    def unasked(self, call: TakenCall) -> PutBack:
        """Nobody could be asked, which is our own fault: look again later. The remote's faults stay
        what they were, so that it is not given up for ours."""
        return PutBack(call, UNASKED_SECONDS, call.faults)

    def later(self, call: TakenCall) -> PutBack:
        """It runs: look again at the pace of such work. A little by chance, so that what was
        spawned together is not asked about together for ever."""
        pause = seconds_to_next_look(
            call.spawned_seconds, call.polls, call.usual_seconds, call.spread_seconds
        )
        return PutBack(call, pause * random.uniform(0.9, 1.1), 0)


def _waits(call: TakenCall, error: RemoteError) -> bool:
    """Whether the remote is away, and the job has the time to wait for it. Once its time is up that
    is borne as any fault is: a machine that slept may have come back before its network."""
    return isinstance(error, RemoteUnreachable) and not call.is_overdue


CALLBACKS_PATH: Final = "/v1/remote-callbacks/"
_SIGNATURE_BYTES: Final = 16
_CALLBACK_CHARACTERS_MAX: Final = 1_024


class SpawnIdentity(NamedTuple):
    """One spawn of one job."""

    org: str
    job: UUID
    spawn: int


class SpawnTokens:
    """Makes tokens and callbacks for one database, and reads callbacks back."""

    def __init__(self, deployment: UUID, key: bytes) -> None:
        self._deployment = deployment
        self._key = key

    def token(self, spawned: SpawnIdentity) -> str:
        """The same for the same spawn, and like no other's."""
        facts = msgspec.json.encode([self._deployment.hex, *_facts(spawned)])
        return hashlib.sha256(facts).hexdigest()

    def callback_url(self, public_url: str, spawned: SpawnIdentity) -> str | None:
        """Where a remote says that it is done; None if it cannot reach us."""
        if not public_url:
            return None
        facts = msgspec.json.encode(_facts(spawned))
        callback = base64.urlsafe_b64encode(self._signature(facts) + facts).rstrip(b"=").decode()
        return public_url.rstrip("/") + CALLBACKS_PATH + callback

    def read_callback(self, callback: str) -> SpawnIdentity | None:
        """The spawn that a callback is about; None if it was not signed here."""
        if len(callback) > _CALLBACK_CHARACTERS_MAX or not callback.isascii():
            return None
        try:
            signed = base64.b64decode(callback + "=" * (-len(callback) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        signature, facts = signed[:_SIGNATURE_BYTES], signed[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._signature(facts)):
            return None
        org, job, spawn = msgspec.json.decode(facts, type=tuple[str, UUID, int])
        return SpawnIdentity(org, job, spawn)

    def _signature(self, facts: bytes) -> bytes:
        return hmac.digest(self._key, facts, "sha256")[:_SIGNATURE_BYTES]


def _facts(spawned: SpawnIdentity) -> tuple[str, str, int]:
    return spawned.org, str(spawned.job), spawned.spawn


_KEPT_OPEN_MAX: Final = 512

Place = bytes
"""What two destinations have in common that go to the same place."""


class RemoteDestinations:
    """Opens destinations. ``operators`` are the operator's own targets by name: they are asked
    wherever they lead, and looked up anew by every process, so a new address needs a restart.
    ``secrets`` has those of tenants."""

    def __init__(
        self, remotes: Remotes, operators: Mapping[str, OperatorRemote], secrets: ServiceSecrets
    ) -> None:
        self._remotes = remotes
        self._operators = operators
        self._secrets = secrets
        self._open: dict[tuple[Place, str, bytes], Remote] = {}

    def place(self, to: Destination) -> Place:
        """Where it goes, whatever for. Secrets have ids of their organisation's own, so what one
        place has in common is one organisation's, unless it needs none."""
        return encode_destination(Destination(to.target, to.secrets_id, to.operator))

    def pace_key(self, to: Destination) -> str:
        """What work of one kind has in common: that it goes to one place. Its flow would not do,
        which may end in a word of a task's payload."""
        return hashlib.sha256(self.place(to)).hexdigest()

    async def open(self, org: str, to: Destination) -> Remote:
        """The adapter, for work of ``org``. Raises RemoteMisdefined, SealingKeyMissing if nothing
        opens its secrets yet, and SecretsLost if nothing ever will."""
        secrets = await self._secrets_of(org, to)
        if self._is_shared(to):
            org = ""
        # With the values: an adapter that was opened before they were replaced is not used again.
        key = self.place(to), org, b"" if secrets is None else encode_secrets(secrets)
        remote = self._open.get(key)
        if remote is None:
            if len(self._open) >= _KEPT_OPEN_MAX:
                self._open.clear()
            remote = self._open[key] = self._opened(org, to, secrets)
        return remote

    def _is_shared(self, to: Destination) -> bool:
        """Whether all organisations use one adapter: Modal's keeps a session of the operator's."""
        target = self._operators.get(to.operator) if to.operator else None
        return target is not None and (target.target or {}).get("adapter") == "modal"

    async def _secrets_of(self, org: str, to: Destination) -> TargetSecrets | None:
        if not to.secrets_id:
            return None
        secrets = await self._secrets.find(org, to.secrets_id)
        if to.target is None or secrets.address != remote_address(to.target):
            raise SecretsLost("The secrets that the job names were given for another address.")
        return secrets

    def _opened(self, org: str, to: Destination, secrets: TargetSecrets | None) -> Remote:
        if not to.operator:
            values = {} if secrets is None else secrets.values
            return self._remotes.open(to.target, secret=values.get, org=org)
        target = self._operators.get(to.operator)
        if target is None:
            name = to.operator.partition(".")[2] or to.operator
            raise RemoteMisdefined(f"The operator has no remote {name!r} (any more).")
        return self._remotes.open(
            target.target, secret=target.secrets.get, by_operator=True, org=org
        )


_log = logging.getLogger(__name__)
_CANCEL_SECONDS_MAX: Final = 5.0
_AWAY_MAX: Final = 1_000


class RemoteContext:
    """Opened and closed by ``RemoteCalls``."""

    def __init__(
        self,
        settings: Settings,
        result_stores: Mapping[str, ResultStore],
        remotes: Remotes,
        operators: Mapping[str, OperatorRemote],
        blobs: Callable[[], BlobContainer],
    ) -> None:
        self.settings = settings
        self.result_stores = result_stores
        self.blobs = blobs
        self.db = Connection(
            settings.database_url, name="remote calls", server_settings=PINNED_PLANS
        )
        self._secrets = ServiceSecrets(settings, self.db)
        self.destinations = RemoteDestinations(remotes, operators, self._secrets)
        self.job_stats = job_stats_of(settings.database_url)
        self._remotes = remotes
        self._notify_db = Connection(settings.database_url, name="remote calls notify")
        self._notifier = Notifier(self._notify_db)
        self._known_tokens: tuple[UUID, SpawnTokens] | None = None
        self._away: set[str] = set()
        self._mistakes: set[tuple[str, str]] = set()

    async def close(self) -> None:
        await self._notifier.drain()
        await self._remotes.__aexit__(None, None, None)
        await self._secrets.close()
        await self.db.close()
        await self._notify_db.close()

    def tell(self, jobs: Sequence[UUID]) -> None:
        """Whoever waits for these may look again."""
        self._notifier.say(CHANGED, [job.hex for job in jobs])

    async def tokens(self) -> SpawnTokens:
        _, tokens = await self._deployment()
        return tokens

    def note_away(self, to: Destination) -> None:
        """Say that a remote cannot be reached, once until it can."""
        place = self.destinations.pace_key(to)
        if place not in self._away:
            if len(self._away) >= _AWAY_MAX:
                self._away.clear()  # it is said once more then
            self._away.add(place)
            _log.warning(
                "a remote cannot be reached; its jobs wait, which costs no attempt",
                extra={"remote": to.shown},
            )

    def note_mistake(self, to: Destination, code: str, message: str) -> None:
        """Say that a remote of the operator's is not set up as it has to be, once for each kind of
        error until something was spawned there. A tenant's own is theirs to set up."""
        if to.operator and (to.operator, code) not in self._mistakes:
            self._mistakes.add((to.operator, code))
            _log.warning(
                "a remote of the operator's cannot be used; its jobs fail: %s",
                message,
                extra={"remote": to.shown, "code": code},
            )

    def note_spawned(self, to: Destination) -> None:
        """A remote has taken work."""
        self._mistakes = {each for each in self._mistakes if each[0] != to.operator}
        self.note_there(to)

    def note_there(self, to: Destination) -> None:
        """A remote has answered."""
        if self._away and (place := self.destinations.pace_key(to)) in self._away:
            self._away.discard(place)
            _log.info("a remote can be reached again", extra={"remote": to.shown})

    async def cancel_there(self, remote: Remote, remote_id: str, job: UUID) -> None:
        """Ask a remote to stop, as far as it can be asked."""
        try:
            async with asyncio.timeout(_CANCEL_SECONDS_MAX):
                await remote.cancel(remote_id)
        except (RemoteError, TimeoutError) as error:
            _log.info(
                "a remote was not told to stop: %s",
                type(error).__name__,
                extra={"job_id": to_text(job)},
            )

    async def kept_for(self, call: TakenCall | IdleCall) -> ResultOf:
        """What a keeper is told of a call."""
        deployment, _ = await self._deployment()
        note = decode_destination(call.destination).note
        return ResultOf(call.org, call.job, call.endpoint, call.owner, deployment, note)

    async def delete_stored(self, call: TakenCall | IdleCall) -> None:
        """Delete what may have been stored for a job that did not complete."""
        store = self.result_stores.get(call.endpoint)
        key = None if store is None else store.blob_key(await self.kept_for(call))
        if key is not None:
            await self.blobs().delete([key])

    async def _deployment(self) -> tuple[UUID, SpawnTokens]:
        if self._known_tokens is None:
            deployment, key = await retried(lambda: remote_calls.callback_key(self.db))
            self._known_tokens = deployment, SpawnTokens(deployment, key)
        return self._known_tokens
