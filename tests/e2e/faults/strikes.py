"""The strike at a crash point, and what whoever was stopped there may still do: see victims.py."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg

from tests.child_process import ChildProcess
from tests.e2e.faults.victims import VICTIM, Victim, servers

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


async def go_on(process: ChildProcess, sql: asyncpg.Connection, *, ends_by_itself: bool) -> None:
    """Let who was stopped go on and end in good order: nothing that has ended changes."""
    before = await sql.fetch(_ENDED)
    process.resume()
    status = await process.exit() if ends_by_itself else await process.terminate()
    # Who hands something in may be told that it is not known what became of it.
    assert status == 0 or (ends_by_itself and status == 1), process.log
    assert "Traceback" not in process.log or ends_by_itself, process.log
    assert await sql.fetch(_ENDED) == before


def _note(process: ChildProcess) -> None:
    if STRUCK_VARIABLE in os.environ:
        path, _, name = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0].partition("::")
        test = f"{path.removesuffix('.py').replace('/', '.')}::{name}"
        entry = {"point": process.point, "role": process.role, "test": test}
        with Path(os.environ[STRUCK_VARIABLE]).open("a") as journal:
            journal.write(json.dumps(entry) + "\n")
