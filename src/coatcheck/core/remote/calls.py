"""Jobs that are done elsewhere: spawned once, looked after until they are done, finalized once.

A worker spawns the work and parks the job; nobody holds it then but a row that says when to look.
Whoever looks (the poller, a caller who reads the job, a callback) takes that row for a while, asks
the remote, and moves the job on. Every write names the lease that was seen: of any number who look
at once, one finalizes (``store/sql/remote``), and who dies is taken over from when its time is up.
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
from coatcheck.core.queries import remote_calls, reports
from coatcheck.core.queries.remote_calls import PutBack, TakenCall
from coatcheck.core.remote.context import Place, RemoteContext, RemoteRetryPolicy, SpawnIdentity
from coatcheck.core.remote.finalizer import Finalizer, RemoteEndings
from coatcheck.core.remote.result_store import ResultStore
from coatcheck.core.remote.spawner import Spawner
from coatcheck.db.errors import retried
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
from coatcheck.remotes.errors import RemoteMisdefined, RemoteUnreachable
from coatcheck.remotes.protocol import (
    RemoteCompleted,
    RemoteFailed,
    RemoteRunning,
    RemoteStatus,
    RemoteUnclear,
    RemoteUnknown,
)
from coatcheck.settings import Settings
from coatcheck.telemetry import context, metrics

_log = logging.getLogger(__name__)

LOOK_LEASE_SECONDS: Final = 45.0
"""One question that is answered late, and some that are not. Asked about twice does no harm."""
_MOMENT_SECONDS: Final = 0.2
_LOOK_WAIT_SECONDS: Final = 10.0
_CALLBACK_LOOKS: Final = 25
_LET_GO_SECONDS_MAX: Final = 2.0
_ID_FIELDS: Final = ("job_id", "id", "request_id")
_ID_CHARACTERS_MAX: Final = 512


class Action(NamedTuple):
    """What has to be done about a call."""

    call: TakenCall
    work: Callable[[], Coroutine[Any, Any, None]]

    async def do(self) -> None:
        with context.about_job(self.call.job, self.call.request_id):
            await self.work()


class RemoteCalls:
    """One per process, in servers and workers alike. A context manager.

    ``result_stores`` say by endpoint what becomes of results; ``operators`` are the operator's own
    targets by name.
    """

    def __init__(
        self,
        settings: Settings,
        result_stores: Mapping[str, ResultStore],
        *,
        blobs: Callable[[], BlobContainer],
        operators: Mapping[str, OperatorRemote] = MappingProxyType({}),
        retry_policy: RemoteRetryPolicy | None = None,
    ) -> None:
        remotes = Remotes(guard_of(settings))
        self._context = RemoteContext(settings, result_stores, remotes, operators, blobs)
        self._retry_policy = retry_policy or RemoteRetryPolicy()
        self._spawner = Spawner(self._context)
        self._endings = RemoteEndings(self._context)
        self._finalizer = Finalizer(self._context, self._endings, self._retry_policy)
        self._background: set[asyncio.Task[Any]] = set()
        self._called_back: set[SpawnIdentity] = set()
        self.parked = asyncio.Event()
        """Set when a job was parked by this process: for its poller to clear."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # What is cut off here is taken over by whoever looks next.
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._context.close()

    async def spawn(self, claimed: ClaimedJob, work: RemoteWork) -> None:
        """For the worker: have it done, and park the job. Raises what is to become of the attempt
        if that is not possible.

        Interrupted, it goes on by itself: what may have been spawned must not be forgotten.
        """
        task = asyncio.create_task(self._spawner.spawn(claimed, work))
        self._background.add(task)
        task.add_done_callback(self._spawn_ended)
        if await asyncio.shield(task):
            self.parked.set()

    def _spawn_ended(self, task: asyncio.Task[bool]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited for it has seen it

    # Looking

    async def look(self, org: str, job: UUID) -> None:
        """Ask how the job's work stands, unless somebody just did; finalize it if it is done.

        Returns when that is over, or after some seconds: then it goes on without the caller.
        """
        task = self._start(self._look_once(org, job, _MOMENT_SECONDS))
        await asyncio.wait([task], timeout=_LOOK_WAIT_SECONDS)

    async def cancel(self, org: str, job: UUID) -> None:
        """After the engine was asked to cancel it: cancel it over there, as far as that can be
        done, and end the job. Whoever looks at it at this moment does it instead."""
        task = self._start(self._look_once(org, job, 0.0))
        await asyncio.wait([task], timeout=_LOOK_WAIT_SECONDS)

    async def signed(self, callback: str) -> bool:
        """Whether somebody here signed this callback."""
        return (await self._context.tokens()).read_callback(callback) is not None

    async def called_back(self, callback: str, body: bytes) -> bool:
        """A remote says that it is done: look. False if nobody here signed this.

        What it says is believed of nothing but the work's id, while that is not known.
        """
        spawned = (await self._context.tokens()).read_callback(callback)
        if spawned is None:
            return False
        told = _told_id(body)
        if told is not None:
            await retried(lambda: remote_calls.note_told_id(self._context.db, *spawned, told))
        if spawned not in self._called_back:
            self._called_back.add(spawned)
            self._start(self._look_for_callback(spawned))
        return True

    async def _look_once(self, org: str, job: UUID, moment: float) -> bool:
        call = await retried(
            lambda: remote_calls.take_one(
                self._context.db,
                org,
                job,
                seconds=LOOK_LEASE_SECONDS,
                moment=moment,
                looker=uuid4(),
            )
        )
        if call is None:
            stray = await retried(lambda: remote_calls.stray(self._context.db, org, job))
            if stray is not None:
                await self._endings.fail(stray)
            return False
        try:
            await self.attend([call])
        except asyncio.CancelledError:
            await self.let_go([call])
            raise
        return True

    async def _look_for_callback(self, spawned: SpawnIdentity) -> None:
        try:
            # Whoever looks right now may have asked a moment too early.
            for _ in range(_CALLBACK_LOOKS):
                if await self._look_once(spawned.org, spawned.job, 0.0):
                    return
                if not await retried(lambda: remote_calls.is_open(self._context.db, *spawned)):
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
            except Exception:  # noqa: BLE001 - nobody waits for this: the poller looks again
                _log.exception("a remote call could not be attended to")

        task = asyncio.create_task(quietly())
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    # What the poller does

    async def take(
        self,
        rows_max: int,
        per_org: int,
        orgs_max: int,
        after: str,
        under_way: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[list[TakenCall], str]:
        """Calls that are due, which are this process's to look at now."""
        return await remote_calls.take(
            self._context.db,
            rows_max=rows_max,
            per_org=per_org,
            seconds=LOOK_LEASE_SECONDS,
            orgs_max=orgs_max,
            after=after,
            looker=uuid4(),
            under_way=under_way,
        )

    async def let_go(self, calls: Sequence[TakenCall]) -> None:
        """This process ends in good order: have somebody else look at calls that it took, at once,
        and not when its time is up."""
        later = [PutBack(call, 0.0, call.faults) for call in calls]
        try:
            async with asyncio.timeout(_LET_GO_SECONDS_MAX):
                await remote_calls.put_back(self._context.db, later)
        except (DatabaseUnavailable, OutcomeUnknown, TimeoutError) as error:
            _log.info("remote calls are left until their time is up: %s", type(error).__name__)

    async def clear_away(self, rows_max: int) -> int:
        """See ``RemoteEndings.clear_away``."""
        return await self._endings.clear_away(rows_max)

    async def fail_strays(self, rows_max: int) -> int:
        """See ``RemoteEndings.fail_strays``."""
        return await self._endings.fail_strays(rows_max)

    async def next_due_seconds(self) -> float | None:
        return await remote_calls.next_due_seconds(self._context.db)

    def by_place(self, calls: Sequence[TakenCall]) -> list[list[TakenCall]]:
        """The calls that can be asked about together: those of one place. At a tenant's they are
        one organisation's; an operator's is asked about everybody's at once."""
        places: dict[tuple[Place, str], list[TakenCall]] = {}
        for call in calls:
            to = decode_destination(call.destination)
            place = self._context.destinations.place(to)
            places.setdefault((place, "" if to.operator else call.org), []).append(call)
        return list(places.values())

    async def attend(self, calls: Sequence[TakenCall]) -> None:
        """Look at calls that were taken, all of one place, and do what has to be done."""
        await _all(action.do() for action in await self.ask(calls))

    async def ask(self, calls: Sequence[TakenCall]) -> list[Action]:
        """Ask about calls of one place that were taken. What has to be done now about some of them;
        the others are put back."""
        actions = [
            Action(call, partial(self._endings.end, call)) for call in calls if _is_over(call)
        ]
        asked = [call for call in calls if not _is_over(call)]
        if not asked:
            return actions
        try:
            remote = await self._opened(asked[0])
        except SecretsLost as error:
            settle = partial(self._endings.settle, event=TransitionEvent.FAIL, code=error.code)
            lost = (Action(call, partial(settle, call, message=str(error))) for call in asked)
            return [*actions, *lost]
        except (RemoteMisdefined, SealingKeyMissing) as error:
            # Of the operator's: their setting may come back. A tenant's was checked before.
            _log.warning("remote calls wait: %s", error)
            later = [self._retry_policy.unasked(call) for call in asked if not call.is_overdue]
            await retried(lambda: remote_calls.put_back(self._context.db, later))
            late = [call for call in asked if call.is_overdue]
            return [*actions, *(Action(call, partial(self._endings.end, call)) for call in late)]
        standing = await remote.status([call.remote_id for call in asked])
        self._note_reached(decode_destination(asked[0].destination), standing.values())
        put_back: list[PutBack] = []
        progress: list[tuple[ClaimedJob, float, str | None]] = []
        for call in asked:
            status = standing[call.remote_id]
            metrics.record_remote_look(type(status).__name__.lower())
            again = self._again(call, status)
            if again is None:
                remote = await self._opened(call)
                actions.append(Action(call, partial(self._act, remote, call, status)))
                continue
            put_back.append(again)
            if isinstance(status, RemoteRunning) and status.progress is not None:
                progress.append((call.held(), status.progress, None))
        if put_back:
            await retried(lambda: remote_calls.put_back(self._context.db, put_back))
        if progress:
            await retried(lambda: reports.set_progress(self._context.db, progress))
            self._context.tell([job.uuid for job, _, _ in progress])
        return actions

    async def _opened(self, call: TakenCall) -> Remote:
        return await self._context.destinations.open(call.org, decode_destination(call.destination))

    def _note_reached(self, to: Destination, standing: Iterable[RemoteStatus]) -> None:
        silent = [
            isinstance(status, RemoteUnclear) and isinstance(status.error, RemoteUnreachable)
            for status in standing
        ]
        if all(silent):
            self._context.note_away(to)
        else:
            self._context.note_there(to)

    def _again(self, call: TakenCall, status: RemoteStatus) -> PutBack | None:
        """When to look again, if there is nothing else to be done."""
        retry_policy = self._retry_policy
        match status:
            case RemoteRunning() if not call.is_overdue:
                return retry_policy.later(call)
            case RemoteUnknown() if retry_policy.bears_ignorance(call):
                return retry_policy.after_fault(call)
            case RemoteUnclear(error=error) if retry_policy.bears_silence(call, error):
                return retry_policy.after_fault(call, error)
            case _:
                return None

    async def _act(self, remote: Remote, call: TakenCall, status: RemoteStatus) -> None:
        endings = self._endings
        match status:
            case RemoteCompleted():
                await self._finalizer.finalize(remote, call)
            case RemoteFailed(code=code, message=message):
                store = self._context.result_stores[call.endpoint]
                for_good = store.fails_for_good(await self._context.kept_for(call))
                await endings.settle(
                    call, TransitionEvent.FAIL if for_good else TransitionEvent.RETRY, code, message
                )
            case RemoteUnknown():
                await endings.settle(
                    call,
                    TransitionEvent.RETRY,
                    "remote_lost",
                    "The remote no longer knows of this work.",
                )
            case RemoteUnclear(error=error):
                await endings.give_up(remote, call, error)
            case RemoteRunning():
                await endings.end(call)  # its time is up


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all of it, also if some of it fails; then raise what failed first."""
    ended = await asyncio.gather(*work, return_exceptions=True)
    for error in ended:
        if error is not None:
            raise error


def _is_over(call: TakenCall) -> bool:
    """Whether it is no longer waited for, or is to be cancelled. One whose time is up is asked
    about all the same: it may be done, and nobody was here to see."""
    return not call.is_held or call.state not in (State.PROCESSING, State.FINALIZING)


def _told_id(body: bytes) -> str | None:
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    for name in _ID_FIELDS:
        told = said.get(name)
        if isinstance(told, str) and 0 < len(told) <= _ID_CHARACTERS_MAX and told.isprintable():
            return told
    return None
