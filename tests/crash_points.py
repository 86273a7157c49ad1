"""Crash points: whom a test strikes when a process comes to one, and what the process may do then.

LAB_VICTIM chooses, and the scenarios are the same. ``process``, which ``make test`` runs, kills the
process there. The others stop it there and let it go on, for chaos/sweep:

``postgresql``  PostgreSQL is killed (-9) and started again while the process stands at the point.
``pause``       The process stands there until all it held is somebody else's and has ended; then it
                goes on with what it was about to do, and nothing that has ended may change.

What is exact after a death is a range when PostgreSQL was the victim: the process lives on beside
those who take over. A claim that was not on disk yet is gone with the server (docs/adr/0009), so a
job may have been executed once more than it was claimed; or the process finishes it by itself, and
then nothing crashed and it was executed once less. Never different: how a job ends, that it ends
once, how often it failed (only a hand-in counts a failure, and that waits for the disk), what is
left over of it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from enum import Enum
from pathlib import Path
from typing import Final

import asyncpg

from coatcheck.db.embedded import EmbeddedPostgres
from tests.child_process import ChildProcess

VARIABLE: Final = "LAB_VICTIM"
THOROUGH_VARIABLE: Final = "LAB_THOROUGH"
"""Set: also strike where another strike proves about the same. ``make test`` leaves those out."""


class Victim(Enum):
    PROCESS = "process"
    POSTGRESQL = "postgresql"
    PAUSE = "pause"

    @property
    def stops(self) -> bool:
        """Whether the process stands still at its point, rather than dying there."""
        return self is not Victim.PROCESS

    @property
    def is_exact(self) -> bool:
        """Whether all is as the process left it, and stays so until others go on."""
        return self is not Victim.POSTGRESQL

    def crash_at(self, point: str) -> str:
        """COATCHECK_CRASH_AT, for ``name`` or ``name:nth``."""
        name, _, nth = point.partition(":")
        return f"{name}:{nth or 1}:stop" if self.stops else point

    def allows(self, counted: int, after_death: int) -> bool:
        """Whether a number of crashes or executions may be so, given what it is after a death."""
        return counted == after_death if self.is_exact else abs(counted - after_death) <= 1


IS_THOROUGH: Final = bool(os.environ.get(THOROUGH_VARIABLE))
VICTIM: Final = Victim(os.environ.get(VARIABLE, Victim.PROCESS.value))

servers: Final[list[EmbeddedPostgres]] = []
"""The server of the test that runs, if PostgreSQL is the victim."""

STRUCK_VARIABLE = "LAB_STRUCK"
"""A file that every strike is noted in, one JSON object a line."""
KILLED = 137
_ENDED = """
SELECT id, state, result, failures, crashes, interruptions, finished_at FROM jobs
WHERE state IN ('completed', 'failed', 'cancelled') ORDER BY id
"""


async def strike(
    process: ChildProcess, sql: asyncpg.Connection, reconnect: Callable[[], Awaitable[None]]
) -> ChildProcess | None:
    """Have the victim struck as the process comes to its crash point. The process, if it lives and
    is to go on. If PostgreSQL was struck, whoever has a connection has lost it: ``reconnect``."""
    if not VICTIM.stops:
        assert await process.exit() == KILLED, process.log
        _note(process)
        return None
    await process.stands_still()
    _note(process)
    if VICTIM is Victim.PAUSE:
        await _end_idle_transactions(sql)
    else:
        (server,) = servers
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        await reconnect()
        process.resume()
    return process


async def _end_idle_transactions(sql: asyncpg.Connection) -> None:
    """As after 30 s, when nobody may be idle in a transaction any longer."""
    await sql.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE state = 'idle in transaction' AND datname = current_database()"
    )


async def go_on(process: ChildProcess, sql: asyncpg.Connection) -> None:
    """Let who was stopped go on and end in good order: nothing that has ended changes."""
    before = await sql.fetch(_ENDED)
    process.resume()
    status = await process.exit() if process.is_one_shot else await process.terminate()
    # Who hands something in may be told that it is not known what became of it.
    assert status == 0 or (process.is_one_shot and status == 1), process.log
    assert "Traceback" not in process.log or process.is_one_shot, process.log
    assert await sql.fetch(_ENDED) == before


def _note(process: ChildProcess) -> None:
    if STRUCK_VARIABLE in os.environ:
        path, _, name = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0].partition("::")
        test = f"{path.removesuffix('.py').replace('/', '.')}::{name}"
        entry = {"point": process.point, "role": process.role, "test": test}
        with Path(os.environ[STRUCK_VARIABLE]).open("a") as journal:
            journal.write(json.dumps(entry) + "\n")
