"""Registers the gateway: services that users declare in Python or register, called over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coatcheck.product import Product, ProductContext, WorkerContext

if TYPE_CHECKING:
    from coatcheck.core.remote.result_store import ResultStore
    from coatcheck.domain.remote_work import OperatorRemote
    from coatcheck.http.context import ServerContext
    from coatcheck.http.job_adapters import JobAdapter
    from coatcheck.http.routing import Route
    from coatcheck.service import Service
    from coatcheck.settings import Settings


def _routes(context: ProductContext) -> Sequence[Route]:
    """Every route of the gateway."""
    from coatcheck.products.gateway import registration_routes, submit_routes
    from coatcheck.products.gateway.jobs import GatewayJobs

    server = context.server
    jobs = GatewayJobs(server)
    return [
        *submit_routes.routes(jobs),
        *jobs.routes(),
        *jobs.list_routes(),
        *registration_routes.routes(jobs),
    ]


def _jobs(server: ServerContext) -> JobAdapter:
    from coatcheck.products.gateway.jobs import GatewayJobs

    return GatewayJobs(server)


@asynccontextmanager
async def _call_services(context: WorkerContext) -> AsyncIterator[Sequence[Service]]:
    from coatcheck.products.gateway.executor import UpstreamExecutor

    async with UpstreamExecutor(context.settings, context.database) as upstreams:
        yield [upstreams.service]


def _result_stores() -> Mapping[str, ResultStore]:
    from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
    from coatcheck.products.gateway.remote import GatewayResultStore

    return {UPSTREAM_ENDPOINT: GatewayResultStore()}


def _operator_remotes(settings: Settings) -> Mapping[str, OperatorRemote]:
    from coatcheck.core.remote.result_store import OPERATORS_PREFIX
    from coatcheck.remotes.definitions import check_operator_remote

    for name, remote in settings.remotes.items():
        check_operator_remote(f"COATCHECK_REMOTES: {name}", remote)
    return {OPERATORS_PREFIX + name: remote for name, remote in settings.remotes.items()}


PRODUCT = Product(
    name="gateway",
    services=("gateway",),
    routes=_routes,
    request_headers=("X-HSL-Lane", "X-HSL-Target-Method"),
    jobs=_jobs,
    adapts_other_jobs=True,
    call_services=_call_services,
    result_stores=_result_stores,
    operator_remotes=_operator_remotes,
)
