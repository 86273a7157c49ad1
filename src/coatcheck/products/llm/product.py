"""Registers the llm product: chats and completions of models on Ollama-shaped servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coatcheck.product import Finding, Product, ProductContext, Verdict, WorkerContext

if TYPE_CHECKING:
    from coatcheck.core import Engine
    from coatcheck.core.explain import JobExplainer
    from coatcheck.http.context import ServerContext
    from coatcheck.http.job_adapters import JobAdapter
    from coatcheck.http.problem_formats import ProblemFormat
    from coatcheck.http.routing import Route
    from coatcheck.maintenance.loop import Loop
    from coatcheck.maintenance.runner import MaintenanceContext
    from coatcheck.settings import Settings
    from coatcheck.worker.worker import Worker


def _routes(context: ProductContext) -> Sequence[Route]:
    """Every route of the product."""
    from coatcheck.products.llm import passthrough, submit_routes
    from coatcheck.products.llm.caller_retries import SynchronousCallers
    from coatcheck.products.llm.images import image_guard
    from coatcheck.products.llm.jobs import (
        JOBS,
        LIST_FILTERS,
        LlmContext,
        LlmJobs,
        large_body_slots,
    )
    from coatcheck.products.llm.openai import routes as openai

    server = context.server
    jobs = LlmJobs(server)
    llm = LlmContext(
        settings=server.settings,
        engine=server.engine,
        gate=server.gate,
        jobs=jobs,
        guard=server.receivers,
        image_guard=image_guard(server.settings),
        draining=server.draining,
        callers=SynchronousCallers(
            server.engine, cancels_abandoned=server.settings.llm_cancel_abandoned
        ),
        room=large_body_slots(server.settings),
    )
    return [
        *submit_routes.routes(llm),
        jobs.list_route(JOBS, "chats", filters=LIST_FILTERS),
        *jobs.routes(),
        *passthrough.routes(llm),
        *openai.routes(llm),
    ]


def _unrouted_formats() -> Mapping[str, ProblemFormat]:
    from coatcheck.products.llm.problem_formats import UNROUTED_FORMATS

    return UNROUTED_FORMATS


def _jobs(server: ServerContext) -> JobAdapter:
    from coatcheck.products.llm.jobs import LlmJobs

    return LlmJobs(server)


@asynccontextmanager
async def _workers(context: WorkerContext) -> AsyncIterator[Sequence[Worker]]:
    if not context.settings.llm_targets:
        yield []
        return
    from coatcheck.products.llm.executor import LlmExecutor

    async with LlmExecutor(context.settings, context.database) as models:
        yield [models.worker()]


def _maintenance(context: MaintenanceContext) -> Sequence[Loop]:
    from coatcheck.products.llm.caller_retries import AbandonedChatPruner

    return [AbandonedChatPruner(context.db)]


def _explainer(engine: Engine) -> JobExplainer:
    from coatcheck.products.llm.jobs import ChatExplainer

    return ChatExplainer(engine)


async def _checks(settings: Settings) -> Sequence[Finding]:
    """Check whether each target answers."""
    if not settings.llm_targets:
        return []
    import httpx2

    from coatcheck.products.llm.upstream import Upstream

    findings = []
    for target in settings.llm_targets:
        subject = f"llm target {target.name}"
        try:
            async with Upstream() as upstream:
                await upstream.get(target, "/api/tags")
        except httpx2.HTTPStatusError as error:
            found = f"{target.url} answers {error.response.status_code}"
            hint = "Check its token, and its URL: the part before /api/chat."
            findings.append(Finding(subject, Verdict.WARN, found, hint))
        except httpx2.HTTPError:
            hint = "It may be asleep: its jobs wait until it answers. Otherwise check its URL."
            findings.append(Finding(subject, Verdict.WARN, f"{target.url} does not answer", hint))
        else:
            findings.append(Finding(subject, Verdict.OK, f"{target.url} answers"))
    return findings


PRODUCT = Product(
    name="llm",
    services=("llm",),
    routes=_routes,
    unrouted_formats=_unrouted_formats,
    request_headers=("OpenAI-Organization", "OpenAI-Project"),
    jobs=_jobs,
    workers=_workers,
    maintenance=_maintenance,
    explainer=_explainer,
    checks=_checks,
)
