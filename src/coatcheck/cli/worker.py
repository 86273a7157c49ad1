"""``coatcheck worker``: the data plane's process."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Annotated, Final
from uuid import UUID

import typer

from coatcheck.cli.environment import prepare
from coatcheck.cli.errors import Misconfigured, reporting_errors
from coatcheck.cli.process import (
    end_with_supervisor,
    keeping_up,
    pushing_metrics,
    require_schema,
    run_until_told,
    tracing_as,
)
from coatcheck.domain.errors import SettingsInvalid
from coatcheck.service import Service, load_services
from coatcheck.settings import Settings
from coatcheck.store.line import Line
from coatcheck.store.notify import Notifier
from coatcheck.surfaces.batches.executor import BatchExecutor
from coatcheck.surfaces.gateway.upstream_executor import UpstreamExecutor
from coatcheck.surfaces.graphs import extra
from coatcheck.surfaces.remote_executor import RemoteExecutor
from coatcheck.surfaces.scrape.executor import ScrapeExecutor
from coatcheck.worker.agent import Worker

_log = logging.getLogger(__name__)
_CALLS: Final = "calls"
"""What the worker of calls is named, after its machine and process."""


@reporting_errors
def worker(
    services: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODULE:SERVICE",
            help="Services of yours; with none, only what comes with Coatcheck.",
        ),
    ] = None,
    supervised: Annotated[UUID | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run jobs from the database named by COATCHECK_DATABASE_URL.

    Beside those of your services, it makes the calls of services that were
    registered over HTTP with an upstream and fetches the pages of the service
    `scrape`, COATCHECK_CALLS_CONCURRENCY in each lane at a time. It takes in the
    lists and writes the exports of batches, analyses the archives of the graphs
    API, COATCHECK_GRAPHS_CONCURRENCY at a time, and sends chats to the targets of
    COATCHECK_LLM_URL or COATCHECK_LLM_TARGETS.

    SIGTERM or Ctrl-C: claims no more, gives running jobs COATCHECK_DRAIN_SECONDS
    to end, puts the rest back without spending an attempt, stops. A second
    signal ends it at once.
    """
    settings = Settings.from_environment()
    prepare(settings)
    loaded = _load(services or [])
    if not loaded:
        _log.info("no service was named: running what comes with Coatcheck")
    if supervised is not None:
        end_with_supervisor(supervised, settings.drain_seconds)
    with tracing_as("worker"):
        run_until_told(lambda stop: _work(settings, loaded, stop))


def _load(targets: list[str]) -> list[Service]:
    try:
        return load_services(targets)
    except SettingsInvalid:
        raise
    except Exception as error:
        # The module is the user's: it may fail to load in any way there is.
        raise Misconfigured(
            f"loading {' '.join(targets)} failed: {type(error).__name__}: {error}\n"
            "`coatcheck --debug worker ...` shows the traceback."
        ) from error


async def _work(settings: Settings, services: list[Service], stop: asyncio.Event) -> None:
    await require_schema(settings)
    async with AsyncExitStack() as closing:
        notify_line = Line(settings.database_url, name="worker notify")
        closing.push_async_callback(notify_line.close)
        notifier = Notifier(notify_line)
        # Calls wait for others, some for an hour: they have slots of their own, so that none of
        # them takes one from a handler.
        calling = _calling(settings)
        upstreams = await closing.enter_async_context(UpstreamExecutor(calling))
        scrape = await closing.enter_async_context(ScrapeExecutor(calling))
        remote = await closing.enter_async_context(RemoteExecutor(settings))
        calls = Worker(
            calling,
            [upstreams.service, scrape.service, *remote.services],
            name=f"{socket.gethostname()}:{os.getpid()}:{_CALLS}",
            remote_calls=remote.calls,
            notifier=notifier,
        )
        batches = await closing.enter_async_context(BatchExecutor(settings, notifier))
        agents = [calls, batches.worker()]
        if services:
            handlers = Worker(
                settings,
                services,
                remote_calls=remote.calls,
                also_published=[scrape.service],
                notifier=notifier,
            )
            agents.insert(0, handlers)
        first = agents[0]
        if settings.graphs_concurrency:
            if extra.is_installed():
                from coatcheck.surfaces.graphs.executor import GraphExecutor

                graphs = await closing.enter_async_context(GraphExecutor(settings))
                agents.append(graphs.worker(notifier))
            else:
                _log.info("this worker analyses no code: install it by %s", extra.HOW_TO_INSTALL)
        if settings.llm_targets:
            from coatcheck.surfaces.llm.executor import LlmExecutor

            models = await closing.enter_async_context(LlmExecutor(settings))
            agents.append(models.worker(notifier))

        async def stop_when_told() -> None:
            await stop.wait()
            for agent in agents:
                agent.stop()

        stopper = asyncio.create_task(stop_when_told())
        try:
            async with (
                pushing_metrics(settings),
                keeping_up(settings),
                asyncio.TaskGroup() as working,
            ):
                working.create_task(first.run())
                # Who sees any worker of this process registered can already call its services.
                await _ready_or_stopped(first, stop)
                for agent in agents[1:]:
                    working.create_task(agent.run())
        finally:
            stopper.cancel()


def _calling(settings: Settings) -> Settings:
    """The settings of the worker that makes calls: with slots for them in the lanes it works on."""
    slots = {
        lane: settings.calls_concurrency if concurrency else 0
        for lane, concurrency in settings.lane_concurrency.items()
    }
    return replace(settings, lane_concurrency=slots)


async def _ready_or_stopped(agent: Worker, stop: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in (agent.ready, stop)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
