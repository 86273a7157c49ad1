"""All routes of the llm product."""

from __future__ import annotations

from coatcheck.http.context import ServerContext
from coatcheck.http.routing import Route
from coatcheck.products.llm import passthrough, submit_routes
from coatcheck.products.llm.caller_retries import SynchronousCallers
from coatcheck.products.llm.context import LlmContext
from coatcheck.products.llm.images import image_guard
from coatcheck.products.llm.jobs import JOBS, LIST_FILTERS, LlmJobs
from coatcheck.products.llm.openai import routes as openai


def routes(server: ServerContext) -> list[Route]:
    """Every route of the product."""
    jobs = LlmJobs(server)
    context = LlmContext(
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
    )
    return [
        *submit_routes.routes(context),
        jobs.list_route(JOBS, "chats", filters=LIST_FILTERS),
        *jobs.routes(),
        *passthrough.routes(context),
        *openai.routes(context),
    ]
