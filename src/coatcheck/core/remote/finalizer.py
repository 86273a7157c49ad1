"""Stores what a remote has made, and completes the job: once, whoever tries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Final

from coatcheck.core.keyed_semaphore import Turns
from coatcheck.core.queries import jobs as job_store
from coatcheck.core.queries import remote_calls as store
from coatcheck.core.queries import reports
from coatcheck.core.queries.remote_calls import FiledArtifact, PutBack, TakenCall
from coatcheck.core.remote.context import RemoteOffice
from coatcheck.core.remote.endings import Endings
from coatcheck.core.remote.result_store import Kept
from coatcheck.core.remote.retry_policy import Patience
from coatcheck.crash import crash_point
from coatcheck.db.errors import retried
from coatcheck.domain.errors import BlobStoreUnavailable, DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.job import JobView
from coatcheck.domain.states import State
from coatcheck.remotes import Remote
from coatcheck.remotes.errors import RESULT_TOO_SLOW, RemoteError, RemoteFaulty
from coatcheck.telemetry import metrics
from coatcheck.telemetry.event_log import EVENTS

_log = logging.getLogger(__name__)

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

    def __init__(self, office: RemoteOffice, endings: Endings, patience: Patience) -> None:
        self._office = office
        self._endings = endings
        self._patience = patience
        self._turns = Turns(_AT_ONCE_MAX, _OF_ONE_ORG_MAX)

    async def finalize(self, remote: Remote, call: TakenCall) -> None:
        """Fetch the result and complete the job with it, unless somebody else does."""
        async with AsyncExitStack() as turn:
            try:
                async with asyncio.timeout(_TURN_SECONDS_MAX):
                    await turn.enter_async_context(self._turns.of(call.org))
            except TimeoutError:
                await self._put_back(PutBack(call, _NO_TURN_SECONDS, call.faults))
                return
            lease = await retried(lambda: store.finalize(self._office.line, call, LEASE_SECONDS))
            if lease is not None:
                await self._finalize(remote, replace(call, lease=lease, state=State.FINALIZING))

    async def _finalize(self, remote: Remote, call: TakenCall) -> None:
        self._office.tell([call.job])
        crash_point("remote.finalizing")
        try:
            kept = await self._while_held(call, self._kept(remote, call))
        except _LeaseLost:
            _log.info("a result is stored by another")
            view = await self._view(call)
            if view is None or (view.terminal and view.state is not State.COMPLETED):
                await self._office.delete_stored(call)
        except BlobStoreUnavailable as error:
            _log.warning("a result cannot be stored yet: %s", error)
            await self._put_back(PutBack(call, _BLOBS_AWAY_SECONDS, call.faults))
        except RemoteError as error:
            if self._patience.bears_no_result(call, error):
                await self._put_back(self._patience.after_fault(call, error))
            else:
                await self._endings.give_up(remote, call, error)
        else:
            crash_point("remote.kept")
            await self._complete(call, kept)

    async def _kept(self, remote: Remote, call: TakenCall) -> Kept:
        keeper = self._office.keepers[call.endpoint]
        kept_for = await self._office.kept_for(call)
        limit = asyncio.timeout(_RESULT_SECONDS_MAX)
        try:
            async with limit, await remote.result(call.remote_id) as result:
                return await keeper.keep(kept_for, result, self._office.blobs())
        except TimeoutError as error:
            if limit.expired():
                raise _too_slow() from error
            raise

    async def _complete(self, call: TakenCall, kept: Kept) -> None:
        keep = self._office.settings.keep_completed_seconds
        done = await retried(
            lambda: store.complete(
                self._office.line, call, call.lease, kept.result, _filed(kept), keep
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
        self._office.tally.moved(call.org, call.lane, State.COMPLETED, ran_seconds=call.ran_seconds)
        self._office.tell([call.job])

    async def _discard(self, call: TakenCall, kept: Kept) -> None:
        """What was stored does not count, unless it does: an answer may have been lost."""
        view = await self._view(call)
        if view is not None and view.state is State.CANCEL_REQUESTED:
            await self._endings.end(replace(call, state=view.state))
            view = await self._view(call)
        if kept.artifact is None:
            return
        key = kept.artifact.blob_key
        line = self._office.line
        counting = await retried(lambda: reports.list_artifacts(line, call.org, call.job))
        keeper = self._office.keepers[call.endpoint]
        shared = keeper.blob_key(await self._office.kept_for(call)) == key
        ended = view is None or view.terminal
        if any(each.blob_key == key for each in counting) or (shared and not ended):
            return
        await self._office.blobs().delete([key])

    async def _view(self, call: TakenCall) -> JobView | None:
        """The job as it is."""
        key = (call.org, call.job)
        return (await retried(lambda: job_store.get(self._office.line, [key]))).get(key)

    async def _while_held(self, call: TakenCall, work: Coroutine[Any, Any, Kept]) -> Kept:
        """Do ``work`` as long as the right to it is renewed. Raises _LeaseLost."""
        working = asyncio.create_task(work)
        loop = asyncio.get_running_loop()
        renewed_at = loop.time()
        try:
            while not (await asyncio.wait([working], timeout=_RENEW_SECONDS))[0]:
                asked_at = loop.time()
                try:
                    if not await store.renew(self._office.line, call, call.lease, LEASE_SECONDS):
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
        await retried(lambda: store.put_back(self._office.line, [call]))


class _LeaseLost(Exception):
    """Somebody else finalizes, or may be about to."""


def _too_slow() -> RemoteFaulty:
    return RemoteFaulty("The result took too long to fetch.", code=RESULT_TOO_SLOW)


def _filed(kept: Kept) -> FiledArtifact | None:
    artifact = kept.artifact
    if artifact is None:
        return None
    return FiledArtifact(
        artifact.name, artifact.blob_key, artifact.media_type, artifact.size, artifact.sha256
    )
