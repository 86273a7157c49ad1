"""Spawns remote work once for a job, and parks the job. Runs in workers."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from coatcheck.core.queries import jobs as job_store
from coatcheck.core.queries import remote_calls, sql
from coatcheck.core.remote.context import RemoteContext, SpawnIdentity
from coatcheck.crash import crash_point
from coatcheck.domain.errors import (
    DatabaseUnavailable,
    FailJob,
    OutcomeUnknown,
    RetryLater,
    SealingKeyMissing,
    SecretsLost,
    TargetUnreachable,
)
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.remote_work import FIRST_POLL_SECONDS, RemoteWork, encode_destination
from coatcheck.domain.retry import DATABASE_BACKOFF
from coatcheck.domain.states import State
from coatcheck.remotes import Remote, SpawnRequest
from coatcheck.remotes.protocol import (
    Reattach,
    RemoteError,
    RemoteFailure,
    RemoteFaulty,
    RemoteMisdefined,
    RemoteRefused,
    RemoteUnreachable,
)

_log = logging.getLogger(__name__)
_OPERATORS_MISTAKES: Final = frozenset(
    {RemoteRefused.code, "remote_http_401", "remote_http_403", "remote_http_404"}
)
"""Codes of refusals that are hardly about the work, but about a credential or an address."""

Answer = TypeVar("Answer")

SPAWN_FAULTS_MAX: Final = 6
"""How many invalid answers a spawn may get before they cost attempts: a few minutes' worth."""


class Spawner:
    """Spawns work and parks jobs."""

    def __init__(self, context: RemoteContext) -> None:
        self._context = context

    async def spawn(self, claimed: ClaimedJob, work: RemoteWork) -> bool:
        """Spawn the work and park the job. False if another process holds the job by now.

        Raises the outcome of the attempt if the work could not be spawned.
        """
        # Before the spawn begins: without an adapter nobody can have accepted the work.
        remote = await self._opened(claimed, work)
        pace_key = self._context.destinations.pace_key(work.to)
        destination = encode_destination(work.to)
        begun = await _insisting(
            lambda: remote_calls.begin(self._context.db, claimed, pace_key, destination)
        )
        if begun is None:
            return False  # whoever holds the job finds this spawn, if it was ever made
        crash_point("remote.begun")
        remote_id = await self._spawned(remote, claimed, work, begun)
        crash_point("remote.spawned")
        parked = await _insisting(
            lambda: remote_calls.park(
                self._context.db, claimed, remote_id, FIRST_POLL_SECONDS, work.to.run_seconds
            )
        )
        crash_point("remote.parked")
        if parked:
            self._context.notify([claimed.uuid])
        else:
            await self._stop_unless_wanted(remote, claimed, remote_id)
        return parked

    async def _opened(self, claimed: ClaimedJob, work: RemoteWork) -> Remote:
        try:
            return await self._context.destinations.open(claimed.org, work.to)
        except RemoteMisdefined as error:
            self._context.note_mistake(work.to, error.code, str(error))
            raise FailJob(str(error), code=error.code) from error
        except SecretsLost as error:
            raise FailJob(str(error), code=error.code) from error
        except SealingKeyMissing as error:
            _log.error("a remote job waits, which costs no attempt: %s", error)
            raise TargetUnreachable(str(error)) from error
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            raise TargetUnreachable("The secrets of the service cannot be read now.") from error

    async def _stop_unless_wanted(
        self, remote: Remote, claimed: ClaimedJob, remote_id: str
    ) -> None:
        """The job was taken away meanwhile. If it has ended, stop the work: nobody else will."""
        found = await job_store.get(self._context.db, [(claimed.org, claimed.uuid)])
        view = found.get((claimed.org, claimed.uuid))
        if view is None or (view.terminal and view.state is not State.COMPLETED):
            await self._context.cancel_remote(remote, remote_id, claimed.uuid)

    async def _not_spawned(self, job: ClaimedJob) -> None:
        """Record that the remote certainly did not accept the work."""
        await sql.fetch(
            self._context.db,
            "remote_calls/not_spawned",
            org=job.org,
            job=job.uuid,
            lease=job.lease,
        )

    async def _spawned(
        self, remote: Remote, claimed: ClaimedJob, work: RemoteWork, begun: remote_calls.Begun
    ) -> str:
        if begun.callback_id is not None:
            return begun.callback_id
        tokens = await self._context.tokens()
        spawned = SpawnIdentity(claimed.org, claimed.uuid, begun.spawn)
        request = SpawnRequest(
            tokens.token(spawned),
            bytes(work.body),
            tokens.callback_url(self._context.settings.public_url, spawned),
        )
        try:
            if begun.tries > 1:
                if remote.reattach is Reattach.NONE:
                    raise id_missing()
                if remote.reattach is Reattach.FIND:
                    found = await remote.find(request.token)
                    if found is not None:
                        return found
            remote_id = await remote.spawn(request)
            self._context.note_spawned(work.to)
            return remote_id
        except RemoteError as error:
            if isinstance(error, RemoteUnreachable):
                self._context.note_unreachable(work.to)
            if error.code in _OPERATORS_MISTAKES:
                self._context.note_mistake(work.to, error.code, str(error))
            if error.perhaps_done and remote.reattach is Reattach.NONE:
                raise id_missing() from error
            if not error.perhaps_done:
                await _insisting(lambda: self._not_spawned(claimed))
            raise _not_spawned(error, claimed) from error


def id_missing() -> FailJob:
    """The outcome of a job whose remote id is lost."""
    return FailJob(
        "The remote may have accepted the work, but its id was lost and cannot be recovered.",
        code=RemoteFailure.ID_MISSING,
    )


async def _insisting(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Repeat until the database answers: once the work is spawned, there is no way back. The
    worker's lease ends it at the latest."""
    failures = 0
    while True:
        try:
            return await ask()
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.info("a spawn waits for the database: %s", error)
            await asyncio.sleep(DATABASE_BACKOFF.delay(failures, random.random()))
            failures += 1


def _not_spawned(error: RemoteError, claimed: ClaimedJob) -> Exception:
    match error:
        case RemoteUnreachable():
            return TargetUnreachable(str(error))
        case RemoteFaulty() if claimed.unreachables < SPAWN_FAULTS_MAX:
            # A proxy in front of a remote that is being deployed answers like this, too.
            return TargetUnreachable(str(error), after=error.retry_after)
        case RemoteRefused():
            return FailJob(str(error), code=error.code)
        case RemoteFaulty():
            return RetryLater(str(error), after=error.retry_after, code=error.code)
        case _:
            return RetryLater(str(error), code=error.code)
