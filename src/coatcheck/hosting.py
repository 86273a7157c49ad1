"""Puts the products that are on into a server and into a worker process."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from coatcheck.blobs import BlobContainer
from coatcheck.core.remote.calls import RemoteCalls
from coatcheck.db.database import Database
from coatcheck.domain.bounds import Bound
from coatcheck.maintenance.remote_poller import Poller, RemoteCleanup
from coatcheck.product import Product, ProductContext, Products, WorkerContext
from coatcheck.service import Service
from coatcheck.settings import Settings

if TYPE_CHECKING:
    from coatcheck.core.webhook_payloads import WebhookPayloads
    from coatcheck.http.app import ProductRoutes
    from coatcheck.http.context import ServerContext
    from coatcheck.http.job_adapters import JobAdapter
    from coatcheck.http.routing import Route
    from coatcheck.worker.worker import Worker


def product_routes(products: Products) -> Sequence[ProductRoutes]:
    """The routes of all products, and the route that serves their webhook payloads."""
    from coatcheck.http.app import ProductRoutes  # a worker loads no server

    routed = [each for each in products if each.routes is not None]
    return [
        *(
            ProductRoutes(
                partial(_routes, each, products),
                {} if each.unrouted_formats is None else each.unrouted_formats(),
                each.request_headers,
                each.response_headers,
                None if each.jobs is None else each.name,
            )
            for each in routed
        ),
        ProductRoutes(partial(_webhook_messages, products)),
    ]


def _routes(product: Product, products: Products, server: ServerContext) -> Sequence[Route]:
    assert product.routes is not None
    _adapters(products, server)
    return product.routes(ProductContext(server, products))


def _webhook_messages(products: Products, server: ServerContext) -> Sequence[Route]:
    """The routes of webhooks that a receiver fetches instead of being posted to."""
    from coatcheck.http.routes import webhook_deliveries

    render = webhook_payloads(products, server).body
    return webhook_deliveries.message_routes(
        server.engine.webhooks, render, server.draining, server.gate
    )


def _adapters(products: Products, server: ServerContext) -> Mapping[str, JobAdapter]:
    """The jobs of each product, by its name."""
    if not server.adapters.all:
        server.adapters.use(server, products)
    return server.adapters.all


def webhook_payloads(products: Products, server: ServerContext) -> WebhookPayloads:
    """The webhook payloads: each product renders those of its jobs and of its other subjects."""
    from coatcheck.core.webhook_payloads import WebhookPayloads
    from coatcheck.http.job_resource import JobResource
    from coatcheck.http.routes import usage

    payloads = {
        name: jobs.payload
        for name, jobs in _adapters(products, server).items()
        if isinstance(jobs, JobResource)
    }
    others = next((each.name for each in products if each.adapts_other_jobs), None)
    kinds = {**usage.renderers(server.engine)}
    for each in products:
        if each.subject_payloads is not None:
            kinds |= each.subject_payloads(server)
    return WebhookPayloads(
        server.engine,
        otherwise=None if others is None else payloads.get(others),
        services={
            service: payloads[each.name]
            for each in products
            if each.name in payloads
            for service in each.services
        },
        kinds=kinds,
    )


_CALLS: Final = "calls"
"""Ends the name of the worker for ``Product.call_services``."""


class RemoteExecutor:
    """Starts work at remotes for the jobs of this process, and polls all work that runs there.

    A context manager that stays open as long as the workers run.

    >>> async with RemoteExecutor(settings, products, database) as remote:
    ...     await Worker(settings, [docs], remote_calls=remote.calls).run()
    """

    def __init__(self, settings: Settings, products: Products, database: Database) -> None:
        self._blob_url = settings.blob_url
        self._blobs: BlobContainer | None = None
        self.calls = RemoteCalls(
            settings,
            products.result_stores(),
            database=database,
            blobs=self._open_blobs,
            operators=products.operator_remotes(settings),
        )
        db = database.maintenance
        self.loops = (Poller(db, self.calls), RemoteCleanup(db, self.calls))
        self._closing = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._closing.enter_async_context(self.calls)
        for loop in self.loops:
            self._closing.push_async_callback(loop.stop)
            loop.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._closing.aclose()

    def _open_blobs(self) -> BlobContainer:
        if self._blobs is None:
            self._blobs = BlobContainer.open(self._blob_url)
        return self._blobs


@asynccontextmanager
async def open_workers(
    settings: Settings, products: Products, services: Sequence[Service], database: Database
) -> AsyncIterator[Sequence[Worker]]:
    """The workers of a process: for ``services``, for the products' call services, and for products
    that bring workers.

    The caller must wait until the first worker is ready before it starts the others: a client that
    sees any worker of this process registered can then call its services. The list is empty if
    there is nothing to run.
    """
    from coatcheck.worker.worker import Worker  # a server loads no worker

    async with AsyncExitStack() as closing:
        # Calls wait for other servers, some for an hour. They have separate slots, so that no call
        # takes a slot from a handler.
        call_settings = _call_settings(settings)
        call_services: list[Service] = []
        for each in products:
            if each.call_services is not None:
                opened = each.call_services(WorkerContext(call_settings, database))
                call_services += await closing.enter_async_context(opened)
        remote = await closing.enter_async_context(RemoteExecutor(settings, products, database))
        workers = []
        if services:
            handlers = Worker(
                settings,
                services,
                remote_calls=remote.calls,
                also_published=[each for each in call_services if each.published],
                database=database,
            )
            workers.append(handlers)
        if call_services:
            calls = Worker(
                call_settings,
                call_services,
                name=f"{socket.gethostname()}:{os.getpid()}:{_CALLS}",
                remote_calls=remote.calls,
                database=database,
            )
            workers.append(calls)
        context = WorkerContext(settings, database)
        for each in products:
            if each.workers is not None:
                workers += await closing.enter_async_context(each.workers(context))
        yield workers


Bound(
    "calls",
    of="calls to upstreams, starts of remote work and page fetches that a worker has in progress "
    "in a lane",
    over="worker",
    response="the job waits; handlers have separate slots",
    settings=["calls_concurrency"],
)


def _call_settings(settings: Settings) -> Settings:
    """The settings of the worker for call services: its slots in each lane that this process
    serves."""
    slots = {
        lane: settings.calls_concurrency if concurrency else 0
        for lane, concurrency in settings.lane_concurrency.items()
    }
    return replace(settings, lane_concurrency=slots)
