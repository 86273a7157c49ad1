"""The parts of an HTTP server that its routes use: opened together and closed together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from coatcheck.core import Engine
from coatcheck.core.catalogue import Catalogue
from coatcheck.core.process_metrics import ProcessMetrics
from coatcheck.core.remote.calls import RemoteCalls
from coatcheck.core.remote.result_store import ResultStore
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.notifications import KEYS, SERVICES
from coatcheck.domain.bounds import share
from coatcheck.domain.remote_work import OperatorRemote
from coatcheck.egress import Guard, guard_of, receiver_guard
from coatcheck.http import connections
from coatcheck.http.auth import Authenticator
from coatcheck.http.billing import Subscriptions
from coatcheck.http.gate import Backlog, Gate
from coatcheck.http.job_adapters import JobAdapters
from coatcheck.http.large_responses import LargeResponses
from coatcheck.http.lifecycle import Readiness, ServerDraining
from coatcheck.http.memory_budget import ANSWERS, MEMORY_MB_MIN, BodyBudget, ByteBudget
from coatcheck.http.open_responses import OpenResponseLimits, OpenResponses
from coatcheck.http.rate_limits import RateLimiter
from coatcheck.http.retry_after import RetryAfterEstimator
from coatcheck.settings import Settings
from coatcheck.telemetry import metrics

_MIB: Final = 1024 * 1024
_PING_SECONDS: Final = 0.4
"""If the database was silent for twice as long, no cache is trusted: a revoked key is refused
within a second even when the connection that reports revocations is dead."""


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The parts that routes and products may use."""

    settings: Settings
    engine: Engine
    catalogue: Catalogue
    gate: Gate
    adapters: JobAdapters
    """The jobs of all products that are on."""
    retry_after: RetryAfterEstimator
    large_results: LargeResponses
    """Responses with large results."""
    bodies: BodyBudget
    """Bounds the memory of request bodies."""
    large_responses: ByteBudget
    """Bounds the memory of large responses."""
    guard: Guard
    """Checks URLs of tenants that jobs call."""
    receivers: Guard
    """Checks URLs of webhook receivers."""
    readiness: Readiness
    subscriptions: Subscriptions
    tenants: Connection
    draining: ServerDraining
    remote_calls: RemoteCalls
    """Jobs that remotes run."""
    open_responses: OpenResponses
    process_metrics: ProcessMetrics
    """The metrics of all processes of the deployment."""


@asynccontextmanager
async def open_server_context(
    settings: Settings,
    engine: Engine,
    *,
    result_stores: Mapping[str, ResultStore] = MappingProxyType({}),
    operators: Mapping[str, OperatorRemote] = MappingProxyType({}),
) -> AsyncIterator[ServerContext]:
    """Open the parts around ``engine``, on its connections. The caller still has to close the
    engine.

    ``result_stores`` and ``operators`` are for jobs that remotes run (``RemoteCalls``).
    """
    async with AsyncExitStack() as closing:
        database = engine.database
        credentials = database.pooled("credentials", server_settings=PINNED_PLANS)
        tenants = database.pooled("tenants")
        rates = database.pooled("rates", server_settings=PINNED_PLANS)

        def trusted() -> bool:
            return subscription.is_listening

        authenticator = Authenticator(settings, credentials, trusted=trusted)
        closing.push_async_callback(authenticator.close)
        subscriptions = Subscriptions(settings, tenants)
        limiter = RateLimiter(rates)
        closing.push_async_callback(limiter.close)
        catalogue = Catalogue(settings, database)
        closing.push_async_callback(catalogue.close)

        def keys_changed(payload: str) -> None:
            authenticator.on_keys_changed(payload)
            subscriptions.on_keys_changed(payload)

        def notifications_missed() -> None:
            authenticator.forget_all()
            subscriptions.forget_all()
            catalogue.forget_all()

        subscription = database.listener.subscribe(
            {KEYS: keys_changed, SERVICES: catalogue.on_notification},
            on_gap=notifications_missed,
            ping_seconds=_PING_SECONDS,
        )
        await subscription.start()
        closing.push_async_callback(subscription.stop)

        async def count_waiting(org: str, jobs_max: int) -> int:
            return await engine.backlog(org, None, jobs_max)

        draining = ServerDraining()
        remote_calls = await closing.enter_async_context(
            RemoteCalls(
                settings,
                result_stores,
                database=database,
                blobs=lambda: engine.blobs,
                operators=operators,
            )
        )
        process_metrics = await closing.enter_async_context(
            ProcessMetrics(database, "serve", lambda: metrics.snapshot("serve"))
        )
        gate = Gate(
            authenticator,
            limiter,
            subscriptions,
            Backlog(count_waiting),
            timeout_seconds_max=settings.call_timeout_seconds_max,
            operator_org=settings.operator_org,
        )

        def share_of(most: int) -> int:
            return share(most, settings.processes)

        def share_of_memory(mb: int) -> int:
            return share(mb, settings.processes, least=MEMORY_MB_MIN) * _MIB

        large_responses = ByteBudget(
            ANSWERS, share_of_memory(settings.answer_memory_mb), is_of_bodies=False
        )
        yield ServerContext(
            settings=settings,
            engine=engine,
            catalogue=catalogue,
            gate=gate,
            adapters=JobAdapters(),
            retry_after=RetryAfterEstimator(engine.explainer.forecasts.eta_in_queue),
            large_results=LargeResponses(engine, large_responses),
            bodies=BodyBudget(share_of_memory(settings.body_memory_mb)),
            large_responses=large_responses,
            guard=guard_of(settings),
            receivers=receiver_guard(settings),
            readiness=Readiness(engine),
            subscriptions=subscriptions,
            tenants=tenants,
            draining=draining,
            remote_calls=remote_calls,
            open_responses=OpenResponses(
                OpenResponseLimits(
                    of_one_key=share_of(settings.held_answers_per_key),
                    of_one_org=share_of(settings.held_answers_per_org),
                    of_one_address=share_of(settings.connections_per_address),
                    in_all=OpenResponseLimits.in_all_of(
                        connections.possible_connections(share_of(settings.connections))
                    ),
                ),
                settings.proxies,
            ),
            process_metrics=process_metrics,
        )
