"""All routes of the llm product, its job adapter and its webhook renderer."""

from __future__ import annotations

from coatcheck.core.webhook_payloads import JobRenderer
from coatcheck.http.context import ServerContext
from coatcheck.http.job_adapters import JobAdapter
from coatcheck.http.routing import Route
from coatcheck.products.llm import passthrough, read_routes, submit_routes, webhook_payloads
from coatcheck.products.llm.caller_retries import SynchronousCallers
from coatcheck.products.llm.context import LlmContext
from coatcheck.products.llm.images import image_guard
from coatcheck.products.llm.job_adapter import LlmJobAdapter
from coatcheck.products.llm.openai import routes as openai
from coatcheck.products.llm.presenter import LlmPresenter


def routes(server: ServerContext) -> list[Route]:
    """Every route of the product."""
    context = LlmContext(
        settings=server.settings,
        engine=server.engine,
        gate=server.gate,
        responses=server.responses,
        presenter=LlmPresenter(server.engine),
        guard=server.receivers,
        image_guard=image_guard(server.settings),
        draining=server.draining,
        callers=SynchronousCallers(
            server.engine, cancels_abandoned=server.settings.llm_cancel_abandoned
        ),
    )
    return [
        *submit_routes.routes(context),
        *read_routes.routes(context),
        *read_routes.file_routes(server, context),
        *passthrough.routes(context),
        *openai.routes(context),
    ]


def job_adapter(server: ServerContext) -> JobAdapter:
    """The adapter for the routes that handle jobs of all products."""
    return LlmJobAdapter(server.engine, server.remote_calls)


def payload_renderer(server: ServerContext) -> JobRenderer:
    """The renderer of webhook payloads for llm jobs."""
    return webhook_payloads.renderer(server.engine, LlmPresenter(server.engine))
