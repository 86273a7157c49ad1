"""One round of the footprint scenario, with the real processes."""

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.footprint.figures import FootprintFigure
from bench.http.connection import Connection
from bench.http.paced import OK, NotServedError
from bench.http.servers import LOOK_SECONDS, READY_SECONDS_MAX, control_plane, worker
from bench.postgres import Postgres
from bench.processes import Child, Processes

RUNS = 7
IDLE_SECONDS = 8.0
_SERVICE = "bench.batches.idle_service:idle"
_IMPORT = ("-c", "from coatcheck import Client")
_HELP = ("-m", "coatcheck.cli", "--help")
_WARM = {"PYTHONDONTWRITEBYTECODE": ""}
"""The first run leaves the bytecode of every module for those that are measured."""
_KIB = 1024
Add = Callable[[FootprintFigure, float], None]


class FootprintRound:
    """Measures each figure and passes it to ``add``."""

    def __init__(self, postgres: Postgres, processes: Processes, folder: Path, add: Add) -> None:
        self._postgres = postgres
        self._processes = processes
        self._folder = folder
        self._add = add

    async def run(self) -> None:
        self._add(FootprintFigure.IMPORT, await asyncio.to_thread(_cpu_ms, _IMPORT))
        self._add(FootprintFigure.HELP, await asyncio.to_thread(_cpu_ms, _HELP))
        database = await self._postgres.create_database("coatcheck")
        settings = {"COATCHECK_BLOB_URL": (self._folder / "footprint-blobs").as_uri(), **_WARM}
        try:
            async with control_plane(database.address, self._processes, settings) as plane:
                await _served(plane.port)
                self._add(FootprintFigure.READY, plane.child.cpu_seconds() * 1_000)
                async with worker(
                    plane, self._processes, {"COATCHECK_LOG_LEVEL": "info"}, service=_SERVICE
                ) as child:
                    await _ready(child)
                    await asyncio.sleep(IDLE_SECONDS)
                    self._add_memory(
                        plane.child, FootprintFigure.SERVER_RSS, FootprintFigure.SERVER_PSS
                    )
                    self._add_memory(child, FootprintFigure.WORKER_RSS, FootprintFigure.WORKER_PSS)
        finally:
            await database.remove()

    def _add_memory(self, child: Child, rss: FootprintFigure, pss: FootprintFigure) -> None:
        child.raise_if_ended()
        rolled_up = Path(f"/proc/{child.process.pid}/smaps_rollup").read_text()
        kib = {name: value for name, value, *_ in map(str.split, rolled_up.splitlines()[1:])}
        for figure, name in ((rss, "Rss:"), (pss, "Pss:")):
            self._add(figure, int(kib[name]) * _KIB / 1e6)


def _cpu_ms(arguments: Sequence[str]) -> float:
    """User and system time of a Python program: the median of some runs."""
    return statistics.median([_cpu_ms_once(arguments) for _ in range(RUNS + 1)][1:])


def _cpu_ms_once(arguments: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **_WARM},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return spent * 1_000


async def _served(port: int) -> None:
    """Wait until the server answers; it accepts connections before."""
    connection = await Connection.open(port)
    answer = await connection.request("GET", "/readyz", {})
    await connection.close()
    if answer.status != OK:
        raise NotServedError(f"/readyz was answered {answer.status}")


async def _ready(child: Child) -> None:
    deadline = time.monotonic() + READY_SECONDS_MAX
    while "worker ready" not in child.log.read_text():
        child.raise_if_ended()
        if time.monotonic() > deadline:
            raise NotServedError(f"no worker is ready after {READY_SECONDS_MAX:g} s")
        await asyncio.sleep(LOOK_SECONDS)
