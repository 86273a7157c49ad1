"""The shared state of remote work: connections, retry policy, tokens and open adapters."""

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
from coatcheck.core.queries import sql
from coatcheck.core.queries.remote_calls import ClaimedCall, IdleCall, NextCheck
from coatcheck.core.remote.result_store import ResultOf, ResultStore
from coatcheck.core.service_secrets import ServiceSecrets
from coatcheck.db.connection import PINNED_PLANS
from coatcheck.db.database import Database
from coatcheck.db.notifications import CHANGED
from coatcheck.domain.catalogue import remote_address
from coatcheck.domain.errors import SecretsLost
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.remote_work import (
    Destination,
    OperatorRemote,
    decode_destination,
    encode_destination,
    seconds_after_faults,
    seconds_to_next_poll,
)
from coatcheck.domain.service_definition import TargetSecrets, encode_secrets
from coatcheck.domain.states import State
from coatcheck.remotes import Remote, Remotes
from coatcheck.remotes.protocol import (
    RemoteError,
    RemoteFailure,
    RemoteFaulty,
    RemoteMisdefined,
    RemoteRefused,
    RemoteUnreachable,
)
from coatcheck.settings import Settings
from coatcheck.telemetry import metrics
from coatcheck.telemetry.event_log import EVENTS
from coatcheck.telemetry.job_stats import job_stats_of

_log = logging.getLogger(__name__)

UNREACHABLE_SECONDS_MIN: Final = 1.0
OWN_FAULT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class RemoteRetryPolicy:
    """How often to ask a remote again before the attempt ends.

    ``faults_max``: invalid answers in a row that end an attempt. ``unknown_max``: how often in a
    row the remote may not know the work. A proxy without a route says so for a moment, and so does
    a queue that learns of it late.
    """

    faults_max: int = 8
    unknown_max: int = 3

    def retries_error(self, call: ClaimedCall, error: RemoteError) -> bool:
        """Whether to ask for the status again instead of ending the attempt. An unreachable remote
        is waited for; one that refuses may accept us again once both sides have a new
        credential."""
        return _waits(call, error) or call.faults + 1 < self.faults_max

    def retries_unknown(self, call: ClaimedCall) -> bool:
        """Whether to ask again although the remote does not know the work."""
        return call.faults + 1 < self.unknown_max

    def retries_result(self, call: ClaimedCall, error: RemoteError) -> bool:
        """Whether to fetch the result again."""
        if _waits(call, error):
            return True
        if isinstance(error, RemoteRefused):
            return False
        # A result that trickles, or comes too late, has used a slot for long enough.
        hurried = call.is_overdue or error.code == RemoteFailure.RESULT_TOO_SLOW
        return call.faults + 1 < (min(2, self.faults_max) if hurried else self.faults_max)

    def after_fault(self, call: ClaimedCall, error: RemoteError | None = None) -> NextCheck:
        """Check again after a fault. An unreachable remote gives no invalid answers: it counts as
        one fault at most, so that a remote that comes back unsteadily is not given up for it."""
        if error is not None and _waits(call, error):
            pause = max(UNREACHABLE_SECONDS_MIN, self.next_check(call).seconds)
            return NextCheck(call, pause, max(1, call.faults))
        faults = call.faults + 1
        asked_for = error.retry_after if isinstance(error, RemoteFaulty) else None
        return NextCheck(call, seconds_after_faults(faults, asked_for), faults)

    def after_own_fault(self, call: ClaimedCall) -> NextCheck:
        """Check again after a fault of ours: no remote could be asked. The remote's faults are left
        unchanged, so that it is not given up for ours."""
        return NextCheck(call, OWN_FAULT_SECONDS, call.faults)

    def next_check(self, call: ClaimedCall) -> NextCheck:
        """The work runs: check again when work of its kind usually ends. With some jitter, so that
        calls that were spawned together are not checked together for ever."""
        pause = seconds_to_next_poll(
            call.spawned_seconds, call.polls, call.usual_seconds, call.spread_seconds
        )
        return NextCheck(call, pause * random.uniform(0.9, 1.1), 0)


def _waits(call: ClaimedCall, error: RemoteError) -> bool:
    """Whether the remote is unreachable and the job has time to wait for it. After its deadline
    this is a fault like any other: a machine that slept may be back before its network."""
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
    """Makes the tokens and callback URLs of a deployment, and verifies callbacks."""

    def __init__(self, deployment: UUID, key: bytes) -> None:
        self._deployment = deployment
        self._key = key

    def token(self, spawned: SpawnIdentity) -> str:
        """The token of a spawn: always the same, and different from all others."""
        facts = msgspec.json.encode([self._deployment.hex, *_facts(spawned)])
        return hashlib.sha256(facts).hexdigest()

    def callback_url(self, public_url: str, spawned: SpawnIdentity) -> str | None:
        """The URL where a remote reports that it is done; None if it cannot reach us."""
        if not public_url:
            return None
        facts = msgspec.json.encode(_facts(spawned))
        callback = base64.urlsafe_b64encode(self._signature(facts) + facts).rstrip(b"=").decode()
        return public_url.rstrip("/") + CALLBACKS_PATH + callback

    def read_callback(self, callback: str) -> SpawnIdentity | None:
        """The spawn of a callback; None if the signature is not ours."""
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
"""Identifies the place of a destination."""


class RemoteDestinations:
    """Opens adapters for destinations. ``operators`` are the operator's own targets by name: they
    may lead anywhere, and every process reads them at start, so a new address needs a restart.
    ``secrets`` has those of tenants."""

    def __init__(
        self, remotes: Remotes, operators: Mapping[str, OperatorRemote], secrets: ServiceSecrets
    ) -> None:
        self._remotes = remotes
        self._operators = operators
        self._secrets = secrets
        self._open: dict[tuple[Place, str, bytes], Remote] = {}

    def place(self, to: Destination) -> Place:
        """The place of a destination, whatever the work. The ids of secrets belong to one
        organisation, so a place that needs secrets is one organisation's."""
        return encode_destination(Destination(to.target, to.secrets_id, to.operator))

    def pace_key(self, to: Destination) -> str:
        """The key of work that usually takes about as long: it goes to one place. The flow would
        not do, because it may end in a word of a task's payload."""
        return hashlib.sha256(self.place(to)).hexdigest()

    async def open(self, org: str, to: Destination) -> Remote:
        """The adapter for work of ``org``. Raises RemoteMisdefined, SealingKeyMissing if its
        secrets cannot be opened yet, and SecretsLost if they never can."""
        secrets = await self._secrets_of(org, to)
        if self._is_shared(to):
            org = ""
        # With the secret values: an adapter with replaced secrets is not used again.
        key = self.place(to), org, b"" if secrets is None else encode_secrets(secrets)
        remote = self._open.get(key)
        if remote is None:
            if len(self._open) >= _KEPT_OPEN_MAX:
                self._open.clear()
            remote = self._open[key] = self._opened(org, to, secrets)
        return remote

    def _is_shared(self, to: Destination) -> bool:
        """Whether all organisations share an adapter: Modal's keeps a session of the operator."""
        target = self._operators.get(to.operator) if to.operator else None
        return target is not None and (target.target or {}).get("adapter") == "modal"

    async def _secrets_of(self, org: str, to: Destination) -> TargetSecrets | None:
        if not to.secrets_id:
            return None
        secrets = await self._secrets.find(org, to.secrets_id)
        if to.target is None or secrets.address != remote_address(to.target):
            raise SecretsLost("The secrets that the job refers to belong to another address.")
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


_CANCEL_SECONDS_MAX: Final = 5.0
_UNREACHABLE_MAX: Final = 1_000


class RemoteContext:
    """The database, destinations and notifications of remote work. ``RemoteCalls`` owns it."""

    def __init__(
        self,
        settings: Settings,
        result_stores: Mapping[str, ResultStore],
        remotes: Remotes,
        operators: Mapping[str, OperatorRemote],
        blobs: Callable[[], BlobContainer],
        database: Database,
    ) -> None:
        self.settings = settings
        self.result_stores = result_stores
        self.blobs = blobs
        self.db = database.pooled("remote calls", server_settings=PINNED_PLANS)
        self._secrets = ServiceSecrets(settings, self.db)
        self.destinations = RemoteDestinations(remotes, operators, self._secrets)
        self.job_stats = job_stats_of(database.url)
        self._remotes = remotes
        self._notifier = database.notifier
        self._known_tokens: tuple[UUID, SpawnTokens] | None = None
        self._unreachable: set[str] = set()
        self._mistakes: set[tuple[str, str]] = set()

    async def close(self) -> None:
        await self._notifier.drain()
        await self._remotes.__aexit__(None, None, None)
        await self._secrets.close()

    def notify(self, jobs: Sequence[UUID]) -> None:
        """Notify those who wait for these jobs."""
        self._notifier.notify(CHANGED, [job.hex for job in jobs])

    def ended(
        self,
        job: ClaimedJob,
        state: State,
        *,
        error_code: str | None = None,
        seconds: float | None = None,
    ) -> None:
        """Count, log and announce that a job has ended, after ``seconds`` of running."""
        self.job_stats.moved(job.org, job.lane, state, code=error_code, ran_seconds=seconds)
        self.notify([job.uuid])
        metrics.record_finished(job.endpoint, state)
        EVENTS.job_ended(
            job.uuid,
            job.org,
            job.endpoint,
            state,
            request_id=job.request_id,
            attempt=job.attempt,
            seconds=seconds,
            error_code=error_code,
        )

    async def tokens(self) -> SpawnTokens:
        _, tokens = await self._deployment()
        return tokens

    def note_unreachable(self, to: Destination) -> None:
        """Log that a remote is unreachable, once until it is reachable again."""
        place = self.destinations.pace_key(to)
        if place not in self._unreachable:
            if len(self._unreachable) >= _UNREACHABLE_MAX:
                self._unreachable.clear()  # it is then logged once more
            self._unreachable.add(place)
            _log.warning(
                "a remote cannot be reached; its jobs wait, which costs no attempt",
                extra={"remote": to.shown},
            )

    def note_mistake(self, to: Destination, code: str, message: str) -> None:
        """Log that a remote of the operator is set up wrongly: once per kind of error, until
        something was spawned there. A tenant's remote is the tenant's to set up."""
        if to.operator and (to.operator, code) not in self._mistakes:
            self._mistakes.add((to.operator, code))
            _log.warning(
                "a remote of the operator cannot be used; its jobs fail: %s",
                message,
                extra={"remote": to.shown, "code": code},
            )

    def note_spawned(self, to: Destination) -> None:
        """Record that a remote accepted work."""
        self._mistakes = {each for each in self._mistakes if each[0] != to.operator}
        self.note_reachable(to)

    def note_reachable(self, to: Destination) -> None:
        """Record that a remote answered."""
        if self._unreachable and (place := self.destinations.pace_key(to)) in self._unreachable:
            self._unreachable.discard(place)
            _log.info("a remote can be reached again", extra={"remote": to.shown})

    async def cancel_remote(self, remote: Remote, remote_id: str, job: UUID) -> None:
        """Ask a remote to stop, if it can be asked."""
        try:
            async with asyncio.timeout(_CANCEL_SECONDS_MAX):
                await remote.cancel(remote_id)
        except (RemoteError, TimeoutError) as error:
            _log.info(
                "a remote was not asked to stop: %s",
                type(error).__name__,
                extra={"job_id": to_text(job)},
            )

    async def result_of(self, call: ClaimedCall | IdleCall) -> ResultOf:
        """The description of a call for its result store."""
        deployment, _ = await self._deployment()
        note = decode_destination(call.destination).note
        return ResultOf(call.org, call.uuid, call.endpoint, call.owner, deployment, note)

    async def delete_stored(self, call: ClaimedCall | IdleCall) -> None:
        """Delete the blob that may have been stored for a job that did not complete."""
        store = self.result_stores.get(call.endpoint)
        key = None if store is None else store.blob_key(await self.result_of(call))
        if key is not None:
            await self.blobs().delete([key])

    async def _deployment(self) -> tuple[UUID, SpawnTokens]:
        if self._known_tokens is None:
            ((deployment, key),) = await sql.fetch(self.db, "remote_calls/callback_key")
            self._known_tokens = deployment, SpawnTokens(deployment, key)
        return self._known_tokens
