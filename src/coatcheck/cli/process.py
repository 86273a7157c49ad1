"""What the long-running commands share: their loop, upkeep, signals and supervisor."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import uvloop

from coatcheck.engine.process_metrics import ProcessMetrics
from coatcheck.processes.identity import name_this_process
from coatcheck.product import Products
from coatcheck.settings import Settings
from coatcheck.store.line import Line
from coatcheck.store.migrate import check_schema
from coatcheck.store.sessions import require_sessions
from coatcheck.telemetry import metrics, tracing
from coatcheck.upkeep import Upkeep

if TYPE_CHECKING:
    from coatcheck.engine.notices import Render

_log = logging.getLogger(__name__)

_SIGNAL_EXIT_BASE: Final = 128
_ORPHAN_SECONDS_MARGIN: Final = 10.0


def run_until_told(work: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Run ``work`` on uvloop. SIGTERM and SIGINT set its event; a second one ends the process."""

    async def with_signals() -> None:
        stop = asyncio.Event()

        def told(number: signal.Signals) -> None:
            if stop.is_set():
                _log.warning("ended at once by a second %s", number.name)
                os._exit(_SIGNAL_EXIT_BASE + number)
            _log.info("stopping at %s", number.name)
            stop.set()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, told, number)
        await work(stop)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(with_signals())


async def require_schema(settings: Settings) -> None:
    """Raise SchemaMismatch, with the command to run, unless the database is at our schema.

    Before that, raise SessionsNotKept if it is behind a pooler that does not keep sessions.
    """
    line = Line(settings.database_url, name="schema check")
    try:
        await require_sessions(line)
        await line.run(check_schema)
    finally:
        await line.close()


@asynccontextmanager
async def keeping_up(settings: Settings, products: Products) -> AsyncIterator[None]:
    """Run the upkeep loops meanwhile: every server and every worker takes part in them."""
    upkeep = Upkeep(settings, products.maintenance())
    upkeep.start()
    try:
        yield
    finally:
        await upkeep.stop()


@contextmanager
def tracing_as(kind: str) -> Iterator[None]:
    """Record and export traces meanwhile, if OpenTelemetry's variables say where to."""
    if tracing.start(kind):
        _log.info("exporting traces")
    try:
        yield
    finally:
        tracing.stop()


@asynccontextmanager
async def pushing_metrics(settings: Settings) -> AsyncIterator[None]:
    """Put a worker's metrics into the database meanwhile; a server does it by itself."""
    async with ProcessMetrics(settings.database_url, "worker", lambda: metrics.snapshot("worker")):
        yield


@asynccontextmanager
async def delivering(settings: Settings, render: Render) -> AsyncIterator[None]:
    """Deliver webhooks meanwhile: every server does, and no worker, which has no secret to sign
    with."""
    from coatcheck.upkeep.deliverer import Deliverer

    deliverer = Deliverer(settings, render)
    await deliverer.begin()
    try:
        yield
    finally:
        await deliverer.stop()


def end_with_supervisor(process_name: UUID, drain_seconds: float) -> None:
    """Go by the name that a supervisor chose for this process, by which it tells of its death; and
    stop this process when the supervisor is gone, however that ended.

    The supervisor holds the other end of our stdin and never writes: the kernel closes it even at
    a kill -9, on every system. We then get the usual SIGTERM, and, should that not end us in time,
    the end that needs no co-operation.
    """

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1):
            continue
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(drain_seconds + _ORPHAN_SECONDS_MARGIN)
        os._exit(_SIGNAL_EXIT_BASE + signal.SIGKILL)

    name_this_process(process_name)
    threading.Thread(target=watch, name="supervisor-watch", daemon=True).start()
