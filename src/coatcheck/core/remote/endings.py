"""How work that is done elsewhere ends without a result, and what is cleared away after it."""

from __future__ import annotations

import logging
import random
from contextlib import suppress

from coatcheck.core.queries import leases
from coatcheck.core.queries import remote_calls as store
from coatcheck.core.queries.leases import Settlement
from coatcheck.core.queries.remote_calls import TakenCall
from coatcheck.core.remote.context import RemoteOffice
from coatcheck.core.remote.spawner import id_missing
from coatcheck.crash import crash_point
from coatcheck.db.errors import retried
from coatcheck.domain.errors import SealingKeyMissing, SecretsLost
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.remote_work import decode_destination
from coatcheck.domain.retry import JOB_BACKOFF
from coatcheck.domain.states import Event, State
from coatcheck.remotes import Remote
from coatcheck.remotes.errors import RemoteError, RemoteMisdefined, RemoteRefused
from coatcheck.telemetry import alerts, metrics
from coatcheck.telemetry.event_log import EVENTS

_log = logging.getLogger(__name__)


class Endings:
    """Ends attempts."""

    def __init__(self, office: RemoteOffice) -> None:
        self._office = office

    async def settle(
        self, call: TakenCall, event: Event, code: str | None, message: str | None
    ) -> None:
        """End the attempt so, unless it is somebody else's by now."""
        delay = JOB_BACKOFF.delay(call.failures, random.random())
        settlement = Settlement(call.held(), event, code, message, delay, call.ran_seconds)
        keep = self._office.settings.keep_failed_seconds
        settled = await retried(lambda: leases.settle(self._office.line, [settlement], keep))
        now = settled.get(call.job)
        if now is None:
            return  # it is somebody else's by now
        state = now.state
        self._office.tally.moved(
            call.org, call.lane, state, code=now.error_code, ran_seconds=call.ran_seconds
        )
        crash_point("remote.settled")
        self._office.tell([call.job])
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
            if event is Event.RETRY and state is State.FAILED:
                alerts.sound(call.job, call.endpoint, call.request_id)
        await self._clean_up(call, state)

    async def _clean_up(self, call: TakenCall, state: State | None) -> None:
        """Delete what was stored for a job that did not complete, then forget the call."""
        if state is None or (state.terminal and state is not State.COMPLETED):
            await self._office.delete_stored(call)
        await retried(lambda: store.drop(self._office.line, call.org, call.job, call.lease))

    async def give_up(self, remote: Remote, call: TakenCall, error: RemoteError) -> None:
        """Nothing more is to be had of this spawn."""
        await self._office.cancel_there(remote, call.remote_id, call.job)
        event = Event.FAIL if isinstance(error, RemoteRefused) else Event.RETRY
        await self.settle(call, event, error.code, str(error))

    async def end(self, call: TakenCall) -> None:
        """A call that is over, is to be cancelled, or has taken too long."""
        if not call.is_held:
            await self._clean_up(call, call.state)
            return
        remote: Remote | None = None
        with suppress(RemoteMisdefined, SealingKeyMissing, SecretsLost):
            to = decode_destination(call.destination)
            remote = await self._office.destinations.open(call.org, to)
        if remote is not None:
            await self._office.cancel_there(remote, call.remote_id, call.job)
        crash_point("remote.cancelled")
        if call.state is State.CANCEL_REQUESTED:
            await self.settle(call, Event.ACKNOWLEDGE_CANCEL, None, None)
        else:
            await self.settle(
                call, Event.RETRY, "timed_out", f"It took longer than {call.ran_seconds:.0f} s."
            )

    async def clear_away(self, rows_max: int) -> int:
        """Delete what is left of jobs that ended while nobody looked at their work. How many."""
        idle = await store.idle(self._office.line, rows_max)
        for call in idle:
            if not call.is_completed:
                await self._office.delete_stored(call)
            await store.forget(self._office.line, call.org, call.job)
        return len(idle)

    async def fail_strays(self, rows_max: int) -> int:
        """Fail parked jobs of whose work nothing is known. How many. Forget paces of long ago."""
        await store.forget_paces(self._office.line)
        strays = await store.strays(self._office.line, rows_max)
        for stray in strays:
            await self.fail(stray)
        return len(strays)

    async def fail(self, stray: ClaimedJob) -> None:
        """A job without its remote's id is in no state that leads anywhere."""
        missing = id_missing()
        settlement = Settlement(stray, Event.FAIL, missing.code, str(missing), 0.0, 0.0)
        keep = self._office.settings.keep_failed_seconds
        if await retried(lambda: leases.settle(self._office.line, [settlement], keep)):
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
            self._office.tally.moved(stray.org, stray.lane, State.FAILED, code=missing.code)
            self._office.tell([stray.uuid])
