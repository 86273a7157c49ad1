"""Stores what a remote has made, and completes the job: once, whoever tries."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any, Final

from coatcheck.core.keyed_semaphore import KeyedSemaphore
from coatcheck.core.queries import jobs as job_store
from coatcheck.core.queries import leases, remote_calls, reports
from coatcheck.core.queries.leases import Settlement
from coatcheck.core.queries.remote_calls import FiledArtifact, PutBack, TakenCall
from coatcheck.core.remote.context import RemoteContext, RemoteRetryPolicy
from coatcheck.core.remote.result_store import StoredOutput
from coatcheck.core.remote.spawner import id_missing
from coatcheck.crash import crash_point
from coatcheck.db.errors import retried
from coatcheck.domain.errors import (
    BlobStoreUnavailable,
    DatabaseUnavailable,
    OutcomeUnknown,
    SealingKeyMissing,
    SecretsLost,
)
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import ClaimedJob, JobView
from coatcheck.domain.remote_work import decode_destination
from coatcheck.domain.retry import JOB_BACKOFF
from coatcheck.domain.states import State, TransitionEvent
from coatcheck.remotes import Remote
from coatcheck.remotes.errors import (
    RESULT_TOO_SLOW,
    RemoteError,
    RemoteFaulty,
    RemoteMisdefined,
    RemoteRefused,
)
from coatcheck.telemetry import alerts, metrics
from coatcheck.telemetry.event_log import EVENTS

_log = logging.getLogger(__name__)


class RemoteEndings:
    """Ends attempts."""

    def __init__(self, context: RemoteContext) -> None:
        self._context = context

    async def settle(
        self, call: TakenCall, event: TransitionEvent, code: str | None, message: str | None
    ) -> None:
        """End the attempt so, unless it is somebody else's by now."""
        delay = JOB_BACKOFF.delay(call.failures, random.random())
        settlement = Settlement(call.held(), event, code, message, delay, call.ran_seconds)
        keep = self._context.settings.keep_failed_seconds
        settled = await retried(lambda: leases.settle(self._context.db, [settlement], keep))
        now = settled.get(call.job)
        if now is None:
            return  # it is somebody else's by now
        state = now.state
        self._context.job_stats.moved(
            call.org, call.lane, state, code=now.error_code, ran_seconds=call.ran_seconds
        )
        crash_point("remote.settled")
        self._context.tell([call.job])
        if state.terminal:
            metrics.record_finished(call.endpoint, state)
            EVENTS.job_ended(
                call.job,
                call.org,
                call.endpoint,
                state,
                request_id=call.request_id,
                attempt=call.attempt,
                seconds=call.ran_seconds,
                error_code=now.error_code,
            )
            if event is TransitionEvent.RETRY and state is State.FAILED:
                alerts.sound(call.job, call.endpoint, call.request_id)
        await self._clean_up(call, state)

    async def _clean_up(self, call: TakenCall, state: State | None) -> None:
        """Delete what was stored for a job that did not complete, then forget the call."""
        if state is None or (state.terminal and state is not State.COMPLETED):
            await self._context.delete_stored(call)
        await retried(lambda: remote_calls.drop(self._context.db, call.org, call.job, call.lease))

    async def give_up(self, remote: Remote, call: TakenCall, error: RemoteError) -> None:
        """Nothing more is to be had of this spawn."""
        await self._context.cancel_there(remote, call.remote_id, call.job)
        event = TransitionEvent.FAIL if isinstance(error, RemoteRefused) else TransitionEvent.RETRY
        await self.settle(call, event, error.code, str(error))

    async def end(self, call: TakenCall) -> None:
        """A call that is over, is to be cancelled, or has taken too long."""
        if not call.is_held:
            await self._clean_up(call, call.state)
            return
        remote: Remote | None = None
        with suppress(RemoteMisdefined, SealingKeyMissing, SecretsLost):
            to = decode_destination(call.destination)
            remote = await self._context.destinations.open(call.org, to)
        if remote is not None:
            await self._context.cancel_there(remote, call.remote_id, call.job)
        crash_point("remote.cancelled")
        if call.state is State.CANCEL_REQUESTED:
            await self.settle(call, TransitionEvent.ACKNOWLEDGE_CANCEL, None, None)
        else:
            await self.settle(
                call,
                TransitionEvent.RETRY,
                "timed_out",
                f"It took longer than {call.ran_seconds:.0f} s.",
            )

    async def clear_away(self, rows_max: int) -> int:
        """Delete what is left of jobs that ended while nobody looked at their work. How many."""
        idle = await remote_calls.idle(self._context.db, rows_max)
        for call in idle:
            if not call.is_completed:
                await self._context.delete_stored(call)
            await remote_calls.forget(self._context.db, call.org, call.job)
        return len(idle)

    async def fail_strays(self, rows_max: int) -> int:
        """Fail parked jobs of whose work nothing is known. How many. Forget paces of long ago."""
        await remote_calls.forget_paces(self._context.db)
        strays = await remote_calls.strays(self._context.db, rows_max)
        for stray in strays:
            await self.fail(stray)
        return len(strays)

    async def fail(self, stray: ClaimedJob) -> None:
        """A job without its remote's id is in no state that leads anywhere."""
        missing = id_missing()
        settlement = Settlement(stray, TransitionEvent.FAIL, missing.code, str(missing), 0.0, 0.0)
        keep = self._context.settings.keep_failed_seconds
        if await retried(lambda: leases.settle(self._context.db, [settlement], keep)):
            named = {"job_id": to_text(stray.uuid), "request_id": stray.request_id}
            _log.error("a parked job had no remote id", extra=named)
            EVENTS.job_ended(
                stray.uuid,
                stray.org,
                stray.endpoint,
                State.FAILED,
                request_id=stray.request_id,
                attempt=stray.attempt,
                error_code=missing.code,
            )
            metrics.record_finished(stray.endpoint, State.FAILED)
            self._context.job_stats.moved(stray.org, stray.lane, State.FAILED, code=missing.code)
            self._context.tell([stray.uuid])


LEASE_SECONDS: Final = 60.0
_RENEW_SECONDS: Final = 15.0
_SELF_STOP_SECONDS: Final = LEASE_SECONDS * 2 / 3
"""Who could not renew for this long stores nothing more: somebody else may be about to."""
_AT_ONCE_MAX: Final = 32
_OF_ONE_ORG_MAX: Final = 4
"""A remote whose results trickle holds up its own organisation, and no other."""
_TURN_SECONDS_MAX: Final = 15.0
_NO_TURN_SECONDS: Final = 1.0
_BLOBS_AWAY_SECONDS: Final = 5.0
_RESULT_SECONDS_MAX: Final = 3_600.0
"""For one result, however steadily it trickles."""


class Finalizer:
    """Finalizes, some at a time."""

    def __init__(
        self, context: RemoteContext, endings: RemoteEndings, retry_policy: RemoteRetryPolicy
    ) -> None:
        self._context = context
        self._endings = endings
        self._retry_policy = retry_policy
        self._turns = KeyedSemaphore(_AT_ONCE_MAX, _OF_ONE_ORG_MAX)

    async def finalize(self, remote: Remote, call: TakenCall) -> None:
        """Fetch the result and complete the job with it, unless somebody else does."""
        async with AsyncExitStack() as turn:
            try:
                async with asyncio.timeout(_TURN_SECONDS_MAX):
                    await turn.enter_async_context(self._turns.of(call.org))
            except TimeoutError:
                await self._put_back(PutBack(call, _NO_TURN_SECONDS, call.faults))
                return
            lease = await retried(
                lambda: remote_calls.finalize(self._context.db, call, LEASE_SECONDS)
            )
            if lease is not None:
                await self._finalize(remote, replace(call, lease=lease, state=State.FINALIZING))

    async def _finalize(self, remote: Remote, call: TakenCall) -> None:
        self._context.tell([call.job])
        crash_point("remote.finalizing")
        try:
            kept = await self._while_held(call, self._kept(remote, call))
        except _LeaseLost:
            _log.info("a result is stored by another")
            view = await self._view(call)
            if view is None or (view.terminal and view.state is not State.COMPLETED):
                await self._context.delete_stored(call)
        except BlobStoreUnavailable as error:
            _log.warning("a result cannot be stored yet: %s", error)
            await self._put_back(PutBack(call, _BLOBS_AWAY_SECONDS, call.faults))
        except RemoteError as error:
            if self._retry_policy.bears_no_result(call, error):
                await self._put_back(self._retry_policy.after_fault(call, error))
            else:
                await self._endings.give_up(remote, call, error)
        else:
            crash_point("remote.kept")
            await self._complete(call, kept)

    async def _kept(self, remote: Remote, call: TakenCall) -> StoredOutput:
        store = self._context.result_stores[call.endpoint]
        kept_for = await self._context.kept_for(call)
        limit = asyncio.timeout(_RESULT_SECONDS_MAX)
        try:
            async with limit, await remote.result(call.remote_id) as result:
                return await store.keep(kept_for, result, self._context.blobs())
        except TimeoutError as error:
            if limit.expired():
                raise _too_slow() from error
            raise

    async def _complete(self, call: TakenCall, kept: StoredOutput) -> None:
        keep = self._context.settings.keep_completed_seconds
        done = await retried(
            lambda: remote_calls.complete(
                self._context.db, call, call.lease, kept.result, _filed(kept), keep
            )
        )
        if not done:
            await self._discard(call, kept)
            return
        crash_point("remote.completed")
        metrics.record_finished(call.endpoint, State.COMPLETED)
        EVENTS.job_ended(
            call.job,
            call.org,
            call.endpoint,
            State.COMPLETED,
            request_id=call.request_id,
            attempt=call.attempt,
            seconds=call.ran_seconds,
        )
        self._context.job_stats.moved(
            call.org, call.lane, State.COMPLETED, ran_seconds=call.ran_seconds
        )
        self._context.tell([call.job])

    async def _discard(self, call: TakenCall, kept: StoredOutput) -> None:
        """What was stored does not count, unless it does: an answer may have been lost."""
        view = await self._view(call)
        if view is not None and view.state is State.CANCEL_REQUESTED:
            await self._endings.end(replace(call, state=view.state))
            view = await self._view(call)
        if kept.artifact is None:
            return
        key = kept.artifact.blob_key
        db = self._context.db
        counting = await retried(lambda: reports.list_artifacts(db, call.org, call.job))
        store = self._context.result_stores[call.endpoint]
        shared = store.blob_key(await self._context.kept_for(call)) == key
        ended = view is None or view.terminal
        if any(each.blob_key == key for each in counting) or (shared and not ended):
            return
        await self._context.blobs().delete([key])

    async def _view(self, call: TakenCall) -> JobView | None:
        """The job as it is."""
        key = (call.org, call.job)
        return (await retried(lambda: job_store.get(self._context.db, [key]))).get(key)

    async def _while_held(
        self, call: TakenCall, work: Coroutine[Any, Any, StoredOutput]
    ) -> StoredOutput:
        """Do ``work`` as long as the right to it is renewed. Raises _LeaseLost."""
        working = asyncio.create_task(work)
        loop = asyncio.get_running_loop()
        renewed_at = loop.time()
        try:
            while not (await asyncio.wait([working], timeout=_RENEW_SECONDS))[0]:
                asked_at = loop.time()
                try:
                    if not await remote_calls.renew(
                        self._context.db, call, call.lease, LEASE_SECONDS
                    ):
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

    async def _put_back(self, call: PutBack) -> None:
        await retried(lambda: remote_calls.put_back(self._context.db, [call]))


class _LeaseLost(Exception):
    """Somebody else finalizes, or may be about to."""


def _too_slow() -> RemoteFaulty:
    return RemoteFaulty("The result took too long to fetch.", code=RESULT_TOO_SLOW)


def _filed(kept: StoredOutput) -> FiledArtifact | None:
    artifact = kept.artifact
    if artifact is None:
        return None
    return FiledArtifact(
        artifact.name, artifact.blob_key, artifact.media_type, artifact.size, artifact.sha256
    )
