"""When to look again at work that is not done, or whose remote says nothing sensible."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from coatcheck.core.queries.remote_calls import PutBack, TakenCall
from coatcheck.domain.remote_poll_times import seconds_after_faults, seconds_to_next_look
from coatcheck.remotes.errors import (
    RESULT_TOO_SLOW,
    RemoteError,
    RemoteFaulty,
    RemoteRefused,
    RemoteUnreachable,
)

AWAY_SECONDS_MIN: Final = 1.0
UNASKED_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Patience:
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
