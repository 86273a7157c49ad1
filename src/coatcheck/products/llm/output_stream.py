"""Follows a job of this surface: what its model says, as it says it, to whoever wants to hear.

The worker stores each piece and tells that the job changed; whoever follows it is woken, and one
read serves all that were (``core/output.py``). Between those nothing is read, but for the look
that the watcher makes every second in case a notification was lost.

What a job said before it began again counts no more. Who follows it live has heard it by then, and
is told (``Restarted``); who comes late is not told what is void already.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import msgspec

from coatcheck.core import Engine
from coatcheck.domain.errors import Unauthenticated
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import JobEvent, JobView
from coatcheck.http import lifecycle
from coatcheck.http.auth.credential_watch import CredentialWatch

IDLE_SECONDS: Final = 15.0
RESTART_MARK: Final = b'{"coatcheck":'
"""How a chunk begins that is not the target's: the executor's, see ``RestartNote``."""


class _Restart(msgspec.Struct, frozen=True):
    attempt: int


class RestartNote(msgspec.Struct, frozen=True):
    """The chunk that says that a job begins its output again."""

    coatcheck: _Restart


_read_note: Final = msgspec.json.Decoder(RestartNote).decode


@dataclass(slots=True, frozen=True)
class OutputChunk:
    """One object of the target's stream, as it sent it. Going on after ``seq`` misses nothing."""

    seq: int
    data: bytes


@dataclass(slots=True, frozen=True)
class Restarted:
    """All output before this is void: the job begins again."""

    seq: int
    attempt: int


@dataclass(slots=True, frozen=True)
class Idle:
    """Nothing was said for a while, and the job goes on."""


@dataclass(slots=True, frozen=True)
class OutputEnded:
    """The job's end, after all of its output. The last piece."""

    view: JobView


@dataclass(slots=True, frozen=True)
class OutputDraining:
    """This server is about to stop; the job goes on, and another can be asked. The last piece."""


Piece = OutputChunk | Restarted | Idle | OutputEnded | OutputDraining


Watch = Callable[[Callable[[], None]], AbstractContextManager[CredentialWatch]]
"""Has something called once the reader's credential stops counting."""


def _unwatched(wake: Callable[[], None]) -> AbstractContextManager[CredentialWatch]:
    return nullcontext(CredentialWatch(None, wake))


async def follow(
    engine: Engine,
    draining: lifecycle.ServerDraining,
    org: str,
    job: UUID,
    *,
    after: int = 0,
    watching: Watch = _unwatched,
) -> AsyncGenerator[Piece, None]:
    """The pieces after the one numbered ``after``, until the job has ended or this server drains.

    Raises JobNotFound if there is no such job, or its retention ends meanwhile, Unauthenticated
    once the credential that is watched does not count any more, and DatabaseUnavailable. Close it,
    if it is left before its end.
    """
    said_at = time.monotonic()
    with (
        engine.watch(to_text(job)) as watch,
        draining.telling(watch.wake),
        watching(watch.wake) as credential,
    ):
        tail = await engine.output.tail(org, job, after)
        if tail.more:
            void = await engine.output.last_mark(org, job, RESTART_MARK) - 1
            if void > after:
                after = void
                tail = await engine.output.tail(org, job, after)
        while True:
            if not await credential.counts():
                raise Unauthenticated
            if tail.events:
                after = tail.events[-1].seq
                for piece in _pieces(tail.events):
                    yield piece
                said_at = time.monotonic()
            if not tail.more:
                if tail.state.terminal:
                    yield OutputEnded(await engine.get(to_text(job), org=org))
                    return
                if draining.begun:
                    yield OutputDraining()
                    return
                if time.monotonic() - said_at >= IDLE_SECONDS:
                    yield Idle()
                    said_at = time.monotonic()
                await watch.changed(IDLE_SECONDS)
            tail = await engine.output.tail(org, job, after)


def _pieces(events: Sequence[JobEvent]) -> list[Piece]:
    """Output and restarts. Log lines and alerts of the worker are no part of the answer."""
    pieces: list[Piece] = []
    for event in events:
        if event.kind != "json":
            continue
        if event.data.startswith(RESTART_MARK):
            pieces = [Restarted(event.seq, _read_note(event.data).coatcheck.attempt)]
        else:
            pieces.append(OutputChunk(event.seq, event.data))
    return pieces
