"""Jobs that a remote service runs: spawned once, polled, finalized once.

A worker spawns the work and parks the job; then only a row says when to check the work. Whoever
checks it (the poller, a caller who reads the job, a callback) claims that row for a while, asks the
remote, and moves the job on. Every write names the lease that was seen: of any number that check at
once, one finalizes (``core/queries/remote_calls.sql``). If that one dies, another takes over when
its claim expires.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, Final, NamedTuple, Self
from uuid import UUID, uuid4

import msgspec

from coatcheck.blobs import BlobContainer
from coatcheck.core.queries import remote_calls, reports, sql
from coatcheck.core.queries.remote_calls import ClaimedCall, NextCheck
from coatcheck.core.remote.context import Place, RemoteContext, RemoteRetryPolicy, SpawnIdentity
from coatcheck.core.remote.finalizer import Finalizer, RemoteEndings
from coatcheck.core.remote.result_store import ResultStore
from coatcheck.core.remote.spawner import Spawner
from coatcheck.db.database import Database
from coatcheck.domain.errors import (
    BlobStoreUnavailable,
    DatabaseUnavailable,
    OutcomeUnknown,
    SealingKeyMissing,
    SecretsLost,
)
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.remote_work import (
    Destination,
    OperatorRemote,
    RemoteWork,
    decode_destination,
)
from coatcheck.domain.states import State, TransitionEvent
from coatcheck.egress import guard_of
from coatcheck.remotes import Remote, Remotes
from coatcheck.remotes.protocol import (
    RemoteCompleted,
    RemoteFailed,
    RemoteFailure,
    RemoteMisdefined,
    RemoteRunning,
    RemoteStatus,
    RemoteUnclear,
    RemoteUnknown,
    RemoteUnreachable,
)
from coatcheck.settings import Settings
from coatcheck.telemetry import context, metrics

_log = logging.getLogger(__name__)

LOOK_LEASE_SECONDS: Final = 45.0
"""Enough for one late answer and some prompt ones. A second check does no harm."""
_MOMENT_SECONDS: Final = 0.2
_LOOK_WAIT_SECONDS: Final = 10.0
_CALLBACK_LOOKS: Final = 25
_RELEASE_SECONDS_MAX: Final = 2.0
_ID_FIELDS: Final = ("job_id", "id", "request_id")
_ID_CHARACTERS_MAX: Final = 512


class Action(NamedTuple):
    """A step to take for a call."""

    call: ClaimedCall
    work: Callable[[], Coroutine[Any, Any, None]]

    async def do(self) -> None:
        with context.about_job(self.call.uuid, self.call.request_id):
            await self.work()


class RemoteCalls:
    """Spawns and checks remote calls. One per process, in servers and workers. A context manager.

    ``result_stores`` store the results, by endpoint; ``operators`` are the operator's own targets
    by name.
    """

    def __init__(
        self,
        settings: Settings,
        result_stores: Mapping[str, ResultStore],
        *,
        database: Database,
        blobs: Callable[[], BlobContainer],
        operators: Mapping[str, OperatorRemote] = MappingProxyType({}),
        retry_policy: RemoteRetryPolicy | None = None,
    ) -> None:
        remotes = Remotes(guard_of(settings))
        self._context = RemoteContext(settings, result_stores, remotes, operators, blobs, database)
        self._retry_policy = retry_policy or RemoteRetryPolicy()
        self._spawner = Spawner(self._context)
        self.endings = RemoteEndings(self._context)
        self._finalizer = Finalizer(self._context, self.endings, self._retry_policy)
        self._background: set[asyncio.Task[Any]] = set()
        self._called_back: set[SpawnIdentity] = set()
        self.parked = asyncio.Event()
        """Set when this process parked a job; its poller clears it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Another process takes over what is cut off here.
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._context.close()

    async def spawn(self, claimed: ClaimedJob, work: RemoteWork) -> None:
        """Spawn the work and park the job; called by the worker. Raises the outcome of the attempt
        if that fails.

        If the caller is cancelled, it continues in the background: a spawn must not be lost.
        """
        task = asyncio.create_task(self._spawner.spawn(claimed, work))
        self._background.add(task)
        task.add_done_callback(self._spawn_ended)
        if await asyncio.shield(task):
            self.parked.set()

    def _spawn_ended(self, task: asyncio.Task[bool]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # the caller has seen it

    # Checking

    async def look(self, org: str, job: UUID) -> None:
        """Check the job's work, unless somebody just did, and finalize it if it is done.

        Returns when that is over, or after some seconds: then it continues in the background.
        """
        task = self._start(self._look_once(org, job, _MOMENT_SECONDS))
        await asyncio.wait([task], timeout=_LOOK_WAIT_SECONDS)

    async def cancel(self, org: str, job: UUID) -> None:
        """Cancel the work at the remote, if possible, and end the job. Called after the engine
        accepted the cancellation. A check that is under way does it instead."""
        task = self._start(self._look_once(org, job, 0.0))
        await asyncio.wait([task], timeout=_LOOK_WAIT_SECONDS)

    async def signed(self, callback: str) -> bool:
        """Whether this deployment signed the callback."""
        return (await self._context.tokens()).read_callback(callback) is not None

    async def called_back(self, callback: str, body: bytes) -> bool:
        """Handle a remote's callback: check the work. False if the callback has no valid signature.

        Of its body only the work's id is used, and only while that is unknown.
        """
        spawned = (await self._context.tokens()).read_callback(callback)
        if spawned is None:
            return False
        remote_id = _callback_id(body)
        if remote_id is not None:
            await sql.fetch(
                self._context.db,
                "remote_calls/note_callback_id",
                remote_id=remote_id,
                **spawned._asdict(),
            )
        if spawned not in self._called_back:
            self._called_back.add(spawned)
            self._start(self._look_for_callback(spawned))
        return True

    async def _look_once(self, org: str, job: UUID, moment: float) -> bool:
        call = await remote_calls.claim_one(
            self._context.db,
            org,
            job,
            seconds=LOOK_LEASE_SECONDS,
            moment=moment,
            looker=uuid4(),
        )
        if call is None:
            orphan = await remote_calls.find_orphan(self._context.db, org, job)
            if orphan is not None:
                await self.endings.fail(orphan)
            return False
        try:
            await self.process([call])
        except asyncio.CancelledError:
            await self.release([call])
            raise
        return True

    async def _look_for_callback(self, spawned: SpawnIdentity) -> None:
        try:
            # A check that is under way may have asked a moment too early.
            for _ in range(_CALLBACK_LOOKS):
                if await self._look_once(spawned.org, spawned.job, 0.0):
                    return
                if not await sql.value(
                    self._context.db, "remote_calls/is_open", **spawned._asdict()
                ):
                    return
                await asyncio.sleep(_MOMENT_SECONDS)
        finally:
            self._called_back.discard(spawned)

    def _start(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[None]:
        async def quietly() -> None:
            try:
                await work
            except (DatabaseUnavailable, OutcomeUnknown, BlobStoreUnavailable) as error:
                _log.info("a remote call is left to the poller: %s", error)
            except Exception:  # noqa: BLE001 - nobody awaits this, and the poller checks again
                _log.exception("a remote call could not be checked")

        task = asyncio.create_task(quietly())
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    # For the poller

    async def claim(
        self,
        rows_max: int,
        per_org: int,
        orgs_max: int,
        after: str,
        under_way: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[list[ClaimedCall], str]:
        """Claim due calls for this process."""
        return await remote_calls.claim_due(
            self._context.db,
            rows_max=rows_max,
            per_org=per_org,
            seconds=LOOK_LEASE_SECONDS,
            orgs_max=orgs_max,
            after=after,
            looker=uuid4(),
            under_way=under_way,
        )

    async def release(self, calls: Sequence[ClaimedCall]) -> None:
        """Release claimed calls at once, because this process stops: others need not wait until the
        claims expire."""
        later = [NextCheck(call, 0.0, call.faults) for call in calls]
        try:
            async with asyncio.timeout(_RELEASE_SECONDS_MAX):
                await remote_calls.reschedule(self._context.db, later)
        except (DatabaseUnavailable, OutcomeUnknown, TimeoutError) as error:
            _log.info("remote calls stay claimed until they expire: %s", type(error).__name__)

    async def next_due_seconds(self) -> float | None:
        """Seconds until a call is due, below 0 if one is; None if there is none."""
        seconds: float | None = await sql.value(self._context.db, "remote_calls/next_due")
        return seconds

    def by_place(self, calls: Sequence[ClaimedCall]) -> list[list[ClaimedCall]]:
        """Group calls that one request can ask about: those of one place. At a tenant's remote they
        are one organisation's; an operator's remote is asked about all organisations at once."""
        places: dict[tuple[Place, str], list[ClaimedCall]] = {}
        for call in calls:
            to = decode_destination(call.destination)
            place = self._context.destinations.place(to)
            places.setdefault((place, "" if to.operator else call.org), []).append(call)
        return list(places.values())

    async def process(self, calls: Sequence[ClaimedCall]) -> None:
        """Check claimed calls of one place, and act on the answers."""
        await _all(action.do() for action in await self.ask(calls))

    async def ask(self, calls: Sequence[ClaimedCall]) -> list[Action]:
        """Check claimed calls of one place. Returns what has to be done now about some of them; the
        others are rescheduled."""
        actions = [
            Action(call, partial(self.endings.end, call)) for call in calls if _is_over(call)
        ]
        asked = [call for call in calls if not _is_over(call)]
        if not asked:
            return actions
        try:
            remote = await self._opened(asked[0])
        except SecretsLost as error:
            settle = partial(
                self.endings.settle, event=TransitionEvent.FAIL, code=RemoteFailure.SECRETS_LOST
            )
            lost = (Action(call, partial(settle, call, message=str(error))) for call in asked)
            return [*actions, *lost]
        except (RemoteMisdefined, SealingKeyMissing) as error:
            # An operator's setting may be corrected. A tenant's was checked at registration.
            _log.warning("remote calls wait: %s", error)
            later = [
                self._retry_policy.after_own_fault(call) for call in asked if not call.is_overdue
            ]
            await remote_calls.reschedule(self._context.db, later)
            late = [call for call in asked if call.is_overdue]
            return [*actions, *(Action(call, partial(self.endings.end, call)) for call in late)]
        standing = await remote.status([call.remote_id for call in asked])
        self._note_reached(decode_destination(asked[0].destination), standing.values())
        rescheduled: list[NextCheck] = []
        progress: list[tuple[ClaimedJob, float, str | None]] = []
        for call in asked:
            status = standing[call.remote_id]
            metrics.record_remote_look(type(status).__name__.lower())
            again = self._again(call, status)
            if again is None:
                remote = await self._opened(call)
                actions.append(Action(call, partial(self._act, remote, call, status)))
                continue
            rescheduled.append(again)
            if isinstance(status, RemoteRunning) and status.progress is not None:
                progress.append((call, status.progress, None))
        if rescheduled:
            await remote_calls.reschedule(self._context.db, rescheduled)
        if progress:
            await reports.set_progress(self._context.db, progress)
            self._context.notify([job.uuid for job, _, _ in progress])
        return actions

    async def _opened(self, call: ClaimedCall) -> Remote:
        return await self._context.destinations.open(call.org, decode_destination(call.destination))

    def _note_reached(self, to: Destination, standing: Iterable[RemoteStatus]) -> None:
        silent = [
            isinstance(status, RemoteUnclear) and isinstance(status.error, RemoteUnreachable)
            for status in standing
        ]
        if all(silent):
            self._context.note_unreachable(to)
        else:
            self._context.note_reachable(to)

    def _again(self, call: ClaimedCall, status: RemoteStatus) -> NextCheck | None:
        """When to check again, if there is nothing else to do."""
        retry_policy = self._retry_policy
        match status:
            case RemoteRunning() if not call.is_overdue:
                return retry_policy.next_check(call)
            case RemoteUnknown() if retry_policy.retries_unknown(call):
                return retry_policy.after_fault(call)
            case RemoteUnclear(error=error) if retry_policy.retries_error(call, error):
                return retry_policy.after_fault(call, error)
            case _:
                return None

    async def _act(self, remote: Remote, call: ClaimedCall, status: RemoteStatus) -> None:
        endings = self.endings
        match status:
            case RemoteCompleted():
                await self._finalizer.finalize(remote, call)
            case RemoteFailed(code=code, message=message):
                store = self._context.result_stores[call.endpoint]
                for_good = store.fails_for_good(await self._context.result_of(call))
                await endings.settle(
                    call, TransitionEvent.FAIL if for_good else TransitionEvent.RETRY, code, message
                )
            case RemoteUnknown():
                await endings.settle(
                    call,
                    TransitionEvent.RETRY,
                    RemoteFailure.LOST,
                    "The remote no longer knows of this work.",
                )
            case RemoteUnclear(error=error):
                await endings.give_up(remote, call, error)
            case RemoteRunning():
                await endings.end(call)  # it has timed out


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all, even if some fail; then raise the first error."""
    ended = await asyncio.gather(*work, return_exceptions=True)
    for error in ended:
        if error is not None:
            raise error


def _is_over(call: ClaimedCall) -> bool:
    """Whether the job no longer waits for the call, or is being cancelled. A call past its deadline
    is still asked about: it may have completed while nobody checked."""
    return not call.is_held or call.state not in (State.PROCESSING, State.FINALIZING)


def _callback_id(body: bytes) -> str | None:
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    for name in _ID_FIELDS:
        remote_id = said.get(name)
        if (
            isinstance(remote_id, str)
            and 0 < len(remote_id) <= _ID_CHARACTERS_MAX
            and remote_id.isprintable()
        ):
            return remote_id
    return None
