"""Follows the output of an llm job as it is produced.

The worker stores each chunk and notifies; the followers of the job wake up, and one read serves all
of them (``core/watcher.py``). Nothing else is read, except that the watcher looks every second in
case a notification was lost.

When a job starts again, its output so far is void. A live follower has already seen it, and gets
``Restarted``; a late follower does not get void output.
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
"""The beginning of a chunk of the executor, see ``RestartNote``. All others are the target's."""


class _Restart(msgspec.Struct, frozen=True):
    attempt: int


class RestartNote(msgspec.Struct, frozen=True):
    """The chunk that says that the output starts again."""

    coatcheck: _Restart


_read_note: Final = msgspec.json.Decoder(RestartNote).decode


@dataclass(slots=True, frozen=True)
class OutputChunk:
    """One object of the target's stream, unchanged. A follower can resume after ``seq``."""

    seq: int
    data: bytes


@dataclass(slots=True, frozen=True)
class Restarted:
    """The job starts again: all output before this is void."""

    seq: int
    attempt: int


@dataclass(slots=True, frozen=True)
class Idle:
    """There was no output for a while, and the job goes on."""


@dataclass(slots=True, frozen=True)
class OutputEnded:
    """The end of the job, after all of its output. The last piece."""

    view: JobView


@dataclass(slots=True, frozen=True)
class OutputDraining:
    """This server is about to stop; the job goes on, and another server can follow it. The last
    piece."""


Piece = OutputChunk | Restarted | Idle | OutputEnded | OutputDraining


Watch = Callable[[Callable[[], None]], AbstractContextManager[CredentialWatch]]
"""Registers a callback for when the reader's credential becomes invalid."""


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

    Raises JobNotFound if there is no such job or its retention ends meanwhile, Unauthenticated
    once the watched credential is no longer valid, and DatabaseUnavailable. Close the generator if
    you leave it before its end.
    """
    last_at = time.monotonic()
    with (
        engine.watch(to_text(job)) as watch,
        draining.on_begin(watch.wake),
        watching(watch.wake) as credential,
    ):
        tail = await engine.output.tail(org, job, after)
        if tail.more:
            void = await engine.output.last_mark(org, job, RESTART_MARK) - 1
            if void > after:
                after = void
                tail = await engine.output.tail(org, job, after)
        while True:
            if not await credential.is_valid():
                raise Unauthenticated
            if tail.events:
                after = tail.events[-1].seq
                for piece in _pieces(tail.events):
                    yield piece
                last_at = time.monotonic()
            if not tail.more:
                if tail.state.terminal:
                    yield OutputEnded(await engine.get(to_text(job), org=org))
                    return
                if draining.begun:
                    yield OutputDraining()
                    return
                if time.monotonic() - last_at >= IDLE_SECONDS:
                    yield Idle()
                    last_at = time.monotonic()
                await watch.changed(IDLE_SECONDS)
            tail = await engine.output.tail(org, job, after)


def _pieces(events: Sequence[JobEvent]) -> list[Piece]:
    """Output and restarts. Log lines and alerts of the worker are not part of the answer."""
    pieces: list[Piece] = []
    for event in events:
        if event.kind != "json":
            continue
        if event.data.startswith(RESTART_MARK):
            pieces = [Restarted(event.seq, _read_note(event.data).coatcheck.attempt)]
        else:
            pieces.append(OutputChunk(event.seq, event.data))
    return pieces
