"""``coatcheck worker``: a process that claims and runs jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import typer

from coatcheck.cli.command_errors import Misconfigured, reporting_errors
from coatcheck.cli.environment import prepare
from coatcheck.cli.process import (
    collect_garbage_rarely,
    end_with_supervisor,
    maintaining,
    pushing_metrics,
    require_schema,
    run_until_signal,
    tracing_as,
)
from coatcheck.db.database import Database
from coatcheck.domain.errors import SettingsInvalid
from coatcheck.hosting import open_workers
from coatcheck.product import Products
from coatcheck.service import Service, load_services
from coatcheck.settings import Settings
from coatcheck.worker.worker import Worker

_log = logging.getLogger(__name__)


@reporting_errors
def worker(
    services: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODULE:SERVICE", help="Your services. Default: only what comes with Coatcheck."
        ),
    ] = None,
    supervised: Annotated[UUID | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a worker, which claims and runs jobs.

    It uses the database in COATCHECK_DATABASE_URL. Besides your services it calls the
    upstreams of services registered over HTTP and fetches pages for the service
    `scrape`, at most COATCHECK_CALLS_CONCURRENCY per lane at once. It reads the task
    lists and writes the exports of batches, analyses code for the graphs API, at most
    COATCHECK_GRAPHS_CONCURRENCY at once, and sends chats to the targets of
    COATCHECK_LLM_URL or COATCHECK_LLM_TARGETS. COATCHECK_PRODUCTS selects what it
    does of this.

    On SIGTERM or Ctrl-C it claims no more jobs, waits COATCHECK_DRAIN_SECONDS for
    running jobs, returns the rest to the queue without counting an attempt, and
    exits. A second signal exits at once.
    """
    settings = Settings.from_environment()
    prepare(settings)
    products = Products.load(settings.products)
    loaded = _load(services or [])
    if not loaded:
        _log.info("no service given; running only what comes with Coatcheck")
    if supervised is not None:
        end_with_supervisor(supervised, settings.drain_seconds)
    with tracing_as("worker"):
        run_until_signal(lambda stop: _work(settings, products, loaded, stop))


def _load(targets: list[str]) -> list[Service]:
    try:
        return load_services(targets)
    except SettingsInvalid:
        raise
    except Exception as error:
        # The module is user code: importing it may raise anything.
        raise Misconfigured(
            f"cannot load {' '.join(targets)}: {type(error).__name__}: {error}\n"
            "`coatcheck --debug worker ...` shows the traceback."
        ) from error


async def _work(
    settings: Settings, products: Products, services: list[Service], stop: asyncio.Event
) -> None:
    async with Database.of_worker(settings.database_url) as database:
        await require_schema(database)
        async with open_workers(settings, products, services, database) as workers:
            if not workers:
                raise Misconfigured(
                    "there is nothing to run: no service was named, and none of the products that "
                    f"are on has work for a worker: {', '.join(each.name for each in products)}\n"
                    "Name a service, or choose other products with COATCHECK_PRODUCTS."
                )
            async with pushing_metrics(database), maintaining(settings, products, database):
                collect_garbage_rarely()
                await _run(workers, stop)


async def _run(workers: Sequence[Worker], stop: asyncio.Event) -> None:
    async def stop_on_signal() -> None:
        await stop.wait()
        for worker in workers:
            worker.stop()

    stopper = asyncio.create_task(stop_on_signal())
    try:
        async with asyncio.TaskGroup() as working:
            first, *others = workers
            working.create_task(first.run())
            await _ready_or_stopped(first, stop)
            for worker in others:
                working.create_task(worker.run())
    finally:
        stopper.cancel()


async def _ready_or_stopped(agent: Worker, stop: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in (agent.ready, stop)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
