"""Shared by the long-running commands: event loop, maintenance, signals and supervisor."""

from __future__ import annotations

import asyncio
import gc
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

from coatcheck.core.process_metrics import ProcessMetrics
from coatcheck.db.database import Database
from coatcheck.db.diagnosis import require_sessions
from coatcheck.db.migrate import check_schema
from coatcheck.maintenance import MaintenanceRunner
from coatcheck.processes import name_this_process
from coatcheck.product import Products
from coatcheck.settings import Settings
from coatcheck.telemetry import metrics, tracing

if TYPE_CHECKING:
    from coatcheck.core.webhook_payloads import Render

_log = logging.getLogger(__name__)

SIGNAL_EXIT_BASE: Final = 128
_ORPHAN_SECONDS_MARGIN: Final = 10.0
_COLLECTED_OBJECTS: Final = 10_000
"""Allocations between two collections of the youngest generation; Python's default is 700."""


def run_until_signal(
    work: Callable[[asyncio.Event], Coroutine[Any, Any, None]], *, is_supervised: bool = False
) -> None:
    """Run ``work`` on uvloop. SIGTERM and SIGINT set its event; a second signal exits at once.

    Unless it ``is_supervised``: then it was perhaps told twice, by a service manager that tells
    every process and by its supervisor, and it is the supervisor that ends it at once.
    """

    async def with_signals() -> None:
        stop = asyncio.Event()

        def on_signal(number: signal.Signals) -> None:
            if stop.is_set() and is_supervised:
                return
            if stop.is_set():
                _log.warning("exiting at once: second %s", number.name)
                os._exit(SIGNAL_EXIT_BASE + number)
            _log.info("received %s; stopping", number.name)
            stop.set()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal, number)
        await work(stop)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(with_signals())


def collect_garbage_rarely() -> None:
    """Run the garbage collector rarely, and only on objects created after the start.

    Requests and jobs leave hardly any cycles, but allocate enough to make the collector scan
    everything that was loaded at the start, and all that is under way, again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECTED_OBJECTS, *gc.get_threshold()[1:])


async def require_schema(database: Database) -> None:
    """Raise SchemaMismatch, with the command to run, unless the database has our schema.

    Raise SessionsNotKept first if a pooler does not keep sessions.
    """
    db = database.pooled("schema check")
    await require_sessions(db)
    await db.run(check_schema)


@asynccontextmanager
async def maintaining(
    settings: Settings, products: Products, database: Database
) -> AsyncIterator[None]:
    """Run the maintenance loops meanwhile; every server and every worker takes part."""
    maintenance = MaintenanceRunner(settings, products.maintenance(), database=database)
    maintenance.start()
    try:
        yield
    finally:
        await maintenance.stop()


@contextmanager
def tracing_as(kind: str) -> Iterator[None]:
    """Export traces meanwhile, if OpenTelemetry's variables are set."""
    if tracing.start(kind):
        _log.info("exporting traces")
    try:
        yield
    finally:
        tracing.stop()


@asynccontextmanager
async def pushing_metrics(database: Database) -> AsyncIterator[None]:
    """Write a worker's metrics to the database meanwhile; a server does so itself."""
    async with ProcessMetrics(database, "worker", lambda: metrics.snapshot("worker")):
        yield


@asynccontextmanager
async def delivering(settings: Settings, render: Render, database: Database) -> AsyncIterator[None]:
    """Deliver webhooks meanwhile. Only servers do: a worker has no secret to sign with."""
    from coatcheck.maintenance.webhooks import WebhookDeliverer

    deliverer = WebhookDeliverer(settings, render, database)
    await deliverer.begin()
    try:
        yield
    finally:
        await deliverer.stop()


def end_with_supervisor(
    process_name: UUID, drain_seconds: float, supervisor: int | None = None
) -> None:
    """Take the process name that the supervisor chose, and exit when the supervisor has died.

    The supervisor holds the other end of this file (our stdin) and never writes: the kernel closes
    it even after kill -9, on every system. We then send ourselves SIGTERM and, if that does not end
    us in time, exit without cleanup.
    """
    file = sys.stdin.fileno() if supervisor is None else supervisor

    def watch() -> None:
        while os.read(file, 1):
            continue
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(drain_seconds + _ORPHAN_SECONDS_MARGIN)
        os._exit(SIGNAL_EXIT_BASE + signal.SIGKILL)

    name_this_process(process_name)
    threading.Thread(target=watch, name="supervisor-watch", daemon=True).start()
