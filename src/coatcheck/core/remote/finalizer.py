"""Stores the results of remote work and completes the jobs, each exactly once."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

from msgspec.structs import replace

from coatcheck.core.queries import jobs as job_store
from coatcheck.core.queries import leases, remote_calls, reports, sql
from coatcheck.core.queries.leases import Settlement
from coatcheck.core.queries.remote_calls import ClaimedCall, IdleCall, NextCheck
from coatcheck.core.remote.context import RemoteContext, RemoteRetryPolicy
from coatcheck.core.remote.result_store import StoredOutput
from coatcheck.core.remote.spawner import id_missing
from coatcheck.crash import crash_point
from coatcheck.domain.errors import (
    BlobStoreUnavailable,
    DatabaseUnavailable,
    OutcomeUnknown,
    SealingKeyMissing,
    SecretsLost,
)
from coatcheck.domain.failures import CoreFailure
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import ClaimedJob, JobView
from coatcheck.domain.remote_work import decode_destination
from coatcheck.domain.retry import JOB_BACKOFF
from coatcheck.domain.states import State, TransitionEvent
from coatcheck.remotes import Remote
from coatcheck.remotes.protocol import (
    RemoteError,
    RemoteFailure,
    RemoteFaulty,
    RemoteMisdefined,
    RemoteRefused,
)
from coatcheck.telemetry import alerts


class KeyedSemaphore:
    """At most ``total_max`` holders, and ``per_key_max`` of each key: a slow key waits alone."""

    def __init__(self, total_max: int, per_key_max: int) -> None:
        self._all = asyncio.Semaphore(total_max)
        self._per_key_max = per_key_max
        self._queues: dict[str, tuple[asyncio.Semaphore, int]] = {}

    @property
    def in_use(self) -> int:
        """How many keys are held or waited for."""
        return len(self._queues)

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        """Wait for a place of ``name``, then for one in all."""
        queue, users = self._queues.get(name, (asyncio.Semaphore(self._per_key_max), 0))
        self._queues[name] = queue, users + 1
        try:
            async with queue, self._all:
                yield
        finally:
            queue, users = self._queues[name]
            if users == 1:
                del self._queues[name]
            else:
                self._queues[name] = queue, users - 1


_log = logging.getLogger(__name__)


class RemoteEndings:
    """Ends the attempts of remote calls."""

    def __init__(self, context: RemoteContext) -> None:
        self._context = context

    async def settle(
        self, call: ClaimedCall, event: TransitionEvent, code: str | None, message: str | None
    ) -> None:
        """End the attempt with this event, unless another process holds the job by now."""
        delay = JOB_BACKOFF.delay(call.failures, random.random())
        settlement = Settlement(call, event, code, message, delay, call.ran_seconds)
        keep = self._context.settings.keep_failed_seconds
        now = await leases.settle_one(self._context.db, settlement, keep)
        if now is None:
            return  # another process holds the job by now
        state = now.state
        crash_point("remote.settled")
        if state.terminal:
            self._context.ended(call, state, error_code=now.error_code, seconds=call.ran_seconds)
            if event is TransitionEvent.RETRY and state is State.FAILED:
                alerts.sound(call.uuid, call.endpoint, call.request_id)
        else:
            self._context.job_stats.moved(
                call.org, call.lane, state, code=now.error_code, ran_seconds=call.ran_seconds
            )
            self._context.notify([call.uuid])
        await self._clean_up(call, state)

    async def _clean_up(self, call: ClaimedCall, state: State | None) -> None:
        """Delete the blob of a job that did not complete, then the call."""
        if state is None or (state.terminal and state is not State.COMPLETED):
            await self._context.delete_stored(call)
        await sql.fetch(
            self._context.db, "remote_calls/drop", org=call.org, job=call.uuid, lease=call.lease
        )

    async def give_up(self, remote: Remote, call: ClaimedCall, error: RemoteError) -> None:
        """Cancel a spawn that cannot succeed any more, and end its attempt."""
        await self._context.cancel_remote(remote, call.remote_id, call.uuid)
        event = TransitionEvent.FAIL if isinstance(error, RemoteRefused) else TransitionEvent.RETRY
        await self.settle(call, event, error.code, str(error))

    async def end(self, call: ClaimedCall) -> None:
        """End a call that is over, is being cancelled, or has timed out."""
        if not call.is_held:
            await self._clean_up(call, call.state)
            return
        remote: Remote | None = None
        with suppress(RemoteMisdefined, SealingKeyMissing, SecretsLost):
            to = decode_destination(call.destination)
            remote = await self._context.destinations.open(call.org, to)
        if remote is not None:
            await self._context.cancel_remote(remote, call.remote_id, call.uuid)
        crash_point("remote.cancelled")
        if call.state is State.CANCEL_REQUESTED:
            await self.settle(call, TransitionEvent.ACKNOWLEDGE_CANCEL, None, None)
        else:
            await self.settle(
                call,
                TransitionEvent.RETRY,
                CoreFailure.TIMED_OUT,
                f"It took longer than {call.ran_seconds:.0f} s.",
            )

    async def delete_leftovers(self, rows_max: int) -> int:
        """Delete the leftovers of jobs that ended while nobody checked them. Returns how many."""
        db = self._context.db
        idle = await sql.fetch(db, "remote_calls/idle", rows_max=rows_max)
        for call in (IdleCall(*row) for row in idle):
            if not call.is_completed:
                await self._context.delete_stored(call)
            await sql.fetch(db, "remote_calls/delete_ended", org=call.org, job=call.uuid)
        return len(idle)

    async def fail_orphans(self, rows_max: int) -> int:
        """Fail parked jobs without a call, and return how many. Also prunes old durations."""
        await sql.fetch(self._context.db, "remote_calls/prune_durations")
        orphans = await remote_calls.list_orphans(self._context.db, rows_max)
        for orphan in orphans:
            await self.fail(orphan)
        return len(orphans)

    async def fail(self, orphan: ClaimedJob) -> None:
        """Fail a job whose remote id is missing: no transition leads on from there."""
        missing = id_missing()
        settlement = Settlement(orphan, TransitionEvent.FAIL, missing.code, str(missing), 0.0, 0.0)
        keep = self._context.settings.keep_failed_seconds
        if await leases.settle_one(self._context.db, settlement, keep):
            named = {"job_id": to_text(orphan.uuid), "request_id": orphan.request_id}
            _log.error("a parked job had no remote id", extra=named)
            self._context.ended(orphan, State.FAILED, error_code=missing.code)


LEASE_SECONDS: Final = 60.0
_RENEW_SECONDS: Final = 15.0
_SELF_STOP_SECONDS: Final = LEASE_SECONDS * 2 / 3
"""After this long without a renewal, nothing more is stored: another process may be about to."""
_AT_ONCE_MAX: Final = 32
_OF_ONE_ORG_MAX: Final = 4
"""A remote whose results trickle holds up its own organisation, and no other."""
_SLOT_WAIT_SECONDS_MAX: Final = 15.0
_NO_SLOT_SECONDS: Final = 1.0
_BLOB_STORE_DOWN_SECONDS: Final = 5.0
_RESULT_SECONDS_MAX: Final = 3_600.0
"""The bound on one result, however steadily it trickles."""


class Finalizer:
    """Finalizes calls, some at a time."""

    def __init__(
        self, context: RemoteContext, endings: RemoteEndings, retry_policy: RemoteRetryPolicy
    ) -> None:
        self._context = context
        self._endings = endings
        self._retry_policy = retry_policy
        self._slots = KeyedSemaphore(_AT_ONCE_MAX, _OF_ONE_ORG_MAX)

    async def finalize(self, remote: Remote, call: ClaimedCall) -> None:
        """Fetch the result and complete the job with it, unless another process does."""
        async with AsyncExitStack() as turn:
            try:
                async with asyncio.timeout(_SLOT_WAIT_SECONDS_MAX):
                    await turn.enter_async_context(self._slots.hold(call.org))
            except TimeoutError:
                await self._reschedule(NextCheck(call, _NO_SLOT_SECONDS, call.faults))
                return
            lease = await remote_calls.finalize(self._context.db, call, LEASE_SECONDS)
            if lease is not None:
                await self._finalize(remote, replace(call, lease=lease, state=State.FINALIZING))

    async def _finalize(self, remote: Remote, call: ClaimedCall) -> None:
        self._context.notify([call.uuid])
        crash_point("remote.finalizing")
        try:
            kept = await self._while_held(call, self._kept(remote, call))
        except _LeaseLost:
            _log.info("another process stores the result")
            view = await self._view(call)
            if view is None or (view.terminal and view.state is not State.COMPLETED):
                await self._context.delete_stored(call)
        except BlobStoreUnavailable as error:
            _log.warning("a result cannot be stored yet: %s", error)
            await self._reschedule(NextCheck(call, _BLOB_STORE_DOWN_SECONDS, call.faults))
        except RemoteError as error:
            if self._retry_policy.retries_result(call, error):
                await self._reschedule(self._retry_policy.after_fault(call, error))
            else:
                await self._endings.give_up(remote, call, error)
        else:
            crash_point("remote.kept")
            await self._complete(call, kept)

    async def _kept(self, remote: Remote, call: ClaimedCall) -> StoredOutput:
        store = self._context.result_stores[call.endpoint]
        result_of = await self._context.result_of(call)
        limit = asyncio.timeout(_RESULT_SECONDS_MAX)
        try:
            async with limit, await remote.result(call.remote_id) as result:
                return await store.keep(result_of, result, self._context.blobs())
        except TimeoutError as error:
            if limit.expired():
                raise _too_slow() from error
            raise

    async def _complete(self, call: ClaimedCall, kept: StoredOutput) -> None:
        keep = self._context.settings.keep_completed_seconds
        done = await remote_calls.complete(self._context.db, call, kept, keep)
        if not done:
            await self._discard(call, kept)
            return
        crash_point("remote.completed")
        self._context.ended(call, State.COMPLETED, seconds=call.ran_seconds)

    async def _discard(self, call: ClaimedCall, kept: StoredOutput) -> None:
        """Delete what was stored, unless it counts after all: an answer may have been lost."""
        view = await self._view(call)
        if view is not None and view.state is State.CANCEL_REQUESTED:
            await self._endings.end(replace(call, state=view.state))
            view = await self._view(call)
        if kept.artifact is None:
            return
        key = kept.artifact.blob_key
        db = self._context.db
        counting = await reports.list_artifacts(db, call.org, call.uuid)
        store = self._context.result_stores[call.endpoint]
        shared = store.blob_key(await self._context.result_of(call)) == key
        ended = view is None or view.terminal
        if any(each.blob_key == key for each in counting) or (shared and not ended):
            return
        await self._context.blobs().delete([key])

    async def _view(self, call: ClaimedCall) -> JobView | None:
        """The job as it is now."""
        key = (call.org, call.uuid)
        return (await job_store.get(self._context.db, [key])).get(key)

    async def _while_held(
        self, call: ClaimedCall, work: Coroutine[Any, Any, StoredOutput]
    ) -> StoredOutput:
        """Run ``work`` while its lease can be renewed. Raises _LeaseLost."""
        working = asyncio.create_task(work)
        loop = asyncio.get_running_loop()
        renewed_at = loop.time()
        try:
            while not (await asyncio.wait([working], timeout=_RENEW_SECONDS))[0]:
                asked_at = loop.time()
                try:
                    if not await remote_calls.renew(self._context.db, call, LEASE_SECONDS):
                        raise _LeaseLost
                    renewed_at = asked_at
                except (DatabaseUnavailable, OutcomeUnknown) as error:
                    _log.info("a finalization could not be renewed: %s", error)
                    if loop.time() - renewed_at > _SELF_STOP_SECONDS:
                        raise _LeaseLost from error
            return await working
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def _reschedule(self, call: NextCheck) -> None:
        await remote_calls.reschedule(self._context.db, [call])


class _LeaseLost(Exception):
    """Another process finalizes the call, or may be about to."""


def _too_slow() -> RemoteFaulty:
    return RemoteFaulty("The result took too long to fetch.", code=RemoteFailure.RESULT_TOO_SLOW)
