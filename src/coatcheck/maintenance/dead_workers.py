"""Finds workers of this host whose processes are gone, and has their jobs start again at once.

Not elected: only a process of the same host can look, and the elected one may be elsewhere, or
frozen. A look is one statement a second and a few reads of /proc; two that find the same do not
disturb each other. Workers of other hosts, and of hosts that cannot be told apart, are judged by
their silence alone (``rescuer.py``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from coatcheck.core.queries import leases
from coatcheck.core.queries.leases import RegisteredWorker
from coatcheck.db.connection import Line
from coatcheck.maintenance.loop import Loop
from coatcheck.maintenance.rescuer import Rescuer
from coatcheck.processes.identity import is_gone, this_host
from coatcheck.processes.orphans import kill_strays

_log = logging.getLogger(__name__)
_LOOK_SECONDS: Final = 1.0
_HOSTLESS_SECONDS: Final = 60.0
_SEARCHES_MAX: Final = 3


class DeadWorkerDetector(Loop):
    name: ClassVar[str] = "dead worker detector"
    elected: ClassVar[bool] = False

    def __init__(self, line: Line, rescuer: Rescuer) -> None:
        super().__init__(line)
        self._rescuer = rescuer

    async def tick(self) -> float:
        host = this_host()
        if host is None:
            return _HOSTLESS_SECONDS
        gone = [
            worker
            for worker, pid, ticks in await leases.workers_of_host(self._line, host)
            if is_gone(pid, ticks)
        ]
        if gone and await declare_dead(self._line, gone):
            await self._rescuer.rescue()
        return _LOOK_SECONDS


async def declare_dead(line: Line, workers: Sequence[RegisteredWorker]) -> list[int]:
    """End the leases of workers whose process has ended, as whoever calls this has seen.

    Before that, end whatever their isolated jobs had started and left behind: a job is not to begin
    again while an attempt of it still runs. A worker of which something cannot be ended keeps its
    leases until their time is up. Returns whose leases were ended.
    """
    alone = [worker for worker in workers if await _left_nothing_running(worker)]
    declared = await leases.declare_dead(line, [worker.boot for worker in alone])
    for boot in declared:
        _log.warning("a worker died: its jobs start again", extra={"boot": boot})
    return declared


async def _left_nothing_running(worker: RegisteredWorker) -> bool:
    if worker.temp_dir is None:
        return True
    if await asyncio.to_thread(_ended_all_in, worker.temp_dir):
        return True
    _log.error(
        "processes of a dead worker's jobs cannot be ended: its leases are left to end",
        extra={"boot": worker.boot},
    )
    return False


def _ended_all_in(directory: Path) -> bool:
    """Whether a search finds nobody left, after those that were found have been killed."""
    return any(kill_strays(directory) == 0 for _ in range(_SEARCHES_MAX))
