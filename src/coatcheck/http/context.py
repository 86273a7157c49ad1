"""What the control plane is made of, besides its routes: opened together, closed together."""

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
from coatcheck.core.remote.result_store import Keeper
from coatcheck.db.channels import KEYS, SERVICES
from coatcheck.db.connection import PINNED_PLANS, Line
from coatcheck.db.listen import Listener
from coatcheck.domain.remote_work import OperatorRemote
from coatcheck.egress import Guard, guard_of, receiver_guard
from coatcheck.http import connections
from coatcheck.http.auth import Authenticator
from coatcheck.http.backlog import Backlog
from coatcheck.http.billing import Subscriptions
from coatcheck.http.draining import Draining
from coatcheck.http.gate import Gate
from coatcheck.http.job_responses import JobAnswers
from coatcheck.http.large_responses import LargeAnswers
from coatcheck.http.memory_budget import BodyBudget, ByteBudget
from coatcheck.http.open_responses import HeldAnswers, HeldLimits
from coatcheck.http.rate_limits import RateLimiter
from coatcheck.http.readiness import Readiness
from coatcheck.http.retry_after import Pace
from coatcheck.settings import Settings
from coatcheck.telemetry import metrics

_MIB: Final = 1024 * 1024
_PING_SECONDS: Final = 0.4
"""If nothing was heard of the database for twice this, no cache is trusted: a revoked key is
refused within a second even when the connection that would have told of it has gone silent."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What routes and surfaces may use."""

    settings: Settings
    engine: Engine
    catalogue: Catalogue
    gate: Gate
    answers: JobAnswers
    bodies: BodyBudget
    """Room for the bodies that arrive."""
    large_answers: ByteBudget
    """Room for the large answers that are sent."""
    guard: Guard
    receivers: Guard
    """Of webhooks."""
    readiness: Readiness
    subscriptions: Subscriptions
    tenants: Line
    draining: Draining
    remote_calls: RemoteCalls
    """Jobs that are done elsewhere."""
    held_answers: HeldAnswers
    process_metrics: ProcessMetrics
    """What all processes say about themselves."""


@asynccontextmanager
async def open_parts(
    settings: Settings,
    engine: Engine,
    *,
    keepers: Mapping[str, Keeper] = MappingProxyType({}),
    operators: Mapping[str, OperatorRemote] = MappingProxyType({}),
) -> AsyncIterator[Parts]:
    """The parts on ``engine``, which stays the caller's to close.

    ``keepers`` and ``operators`` are for jobs that are done elsewhere (``RemoteCalls``).
    """
    async with AsyncExitStack() as closing:
        credentials = Line(settings.database_url, name="credentials", server_settings=PINNED_PLANS)
        closing.push_async_callback(credentials.close)
        tenants = Line(settings.database_url, name="tenants")
        closing.push_async_callback(tenants.close)
        rates = Line(settings.database_url, name="rates", server_settings=PINNED_PLANS)
        closing.push_async_callback(rates.close)

        def trusted() -> bool:
            return listener.is_listening

        authenticator = Authenticator(settings, credentials, trusted=trusted)
        closing.push_async_callback(authenticator.close)
        subscriptions = Subscriptions(settings, tenants)
        limiter = RateLimiter(rates)
        closing.push_async_callback(limiter.close)
        catalogue = Catalogue(settings)
        closing.push_async_callback(catalogue.close)
        readiness = Readiness(settings, engine)
        closing.push_async_callback(readiness.close)

        def keys_changed(payload: str) -> None:
            authenticator.heard(payload)
            subscriptions.heard(payload)

        def gap() -> None:
            authenticator.forget_all()
            subscriptions.forget_all()
            catalogue.forget_all()

        listener = Listener(
            settings.database_url,
            {KEYS: keys_changed, SERVICES: catalogue.heard},
            on_gap=gap,
            ping_seconds=_PING_SECONDS,
        )
        await listener.start()
        closing.push_async_callback(listener.stop)

        async def waiting(org: str, most: int) -> int:
            return await engine.backlog(org, None, most)

        draining = Draining()
        remote_calls = await closing.enter_async_context(
            RemoteCalls(settings, keepers, blobs=lambda: engine.blobs, operators=operators)
        )
        process_metrics = await closing.enter_async_context(
            ProcessMetrics(settings.database_url, "serve", lambda: metrics.snapshot("serve"))
        )
        gate = Gate(
            authenticator,
            limiter,
            subscriptions,
            Backlog(waiting),
            timeout_seconds_max=settings.call_timeout_seconds_max,
            operator_org=settings.operator_org,
        )
        large_answers = ByteBudget("answers", settings.answer_memory_mb * _MIB, is_of_bodies=False)
        yield Parts(
            settings=settings,
            engine=engine,
            catalogue=catalogue,
            gate=gate,
            answers=JobAnswers(
                engine,
                Pace(engine.explainer.forecasts.eta_in_queue),
                draining,
                gate,
                LargeAnswers(engine, large_answers),
            ),
            bodies=BodyBudget(settings.body_memory_mb * _MIB),
            large_answers=large_answers,
            guard=guard_of(settings),
            receivers=receiver_guard(settings),
            readiness=readiness,
            subscriptions=subscriptions,
            tenants=tenants,
            draining=draining,
            remote_calls=remote_calls,
            held_answers=HeldAnswers(
                HeldLimits(
                    of_one_key=settings.held_answers_per_key,
                    of_one_org=settings.held_answers_per_org,
                    of_one_address=settings.connections_per_address,
                    in_all=HeldLimits.in_all_of(connections.possible(settings.connections)),
                ),
                settings.proxies,
            ),
            process_metrics=process_metrics,
        )
