"""Assembles the speech routes, job adapter and webhook renderer."""

from __future__ import annotations

from coatcheck.core.webhook_payloads import JobRenderer
from coatcheck.http.artifacts import OwnedJobs, artifact_routes
from coatcheck.http.context import ServerContext
from coatcheck.http.job_adapters import JobAdapter
from coatcheck.http.routing import ULID, Parameter, Route
from coatcheck.products.speech import (
    generation_routes,
    read_routes,
    submit_routes,
    voice_routes,
    webhook_payloads,
)
from coatcheck.products.speech.context import SpeechContext
from coatcheck.products.speech.job_adapter import SpeechJobAdapter
from coatcheck.products.speech.model import SPEECH_TYPES
from coatcheck.products.speech.presenter import task_urls


def routes(server: ServerContext) -> list[Route]:
    """Every route of the product."""
    context = _context(server)
    return [
        *voice_routes.routes(context),
        *submit_routes.routes(context),
        *read_routes.routes(context),
        *generation_routes.routes(context),
        *artifact_routes(
            server,
            OwnedJobs(
                server.engine, context.job, lambda job_id: task_urls(job_id).poll, set(SPEECH_TYPES)
            ),
            path=read_routes.TASK,
            name="speech_task",
            tag=submit_routes.TAG,
            parameters=(Parameter("id", "path", "The task's id.", ULID),),
        ),
    ]


def job_adapter(server: ServerContext) -> JobAdapter:
    """Adapts speech tasks for the console."""
    return SpeechJobAdapter(_context(server))


def payload_renderer(server: ServerContext) -> JobRenderer:
    """Renders speech tasks for webhooks."""
    return webhook_payloads.renderer(server.engine)


def _context(server: ServerContext) -> SpeechContext:
    return SpeechContext(
        settings=server.settings,
        engine=server.engine,
        gate=server.gate,
        responses=server.responses,
        remote_calls=server.remote_calls,
        guard=server.receivers,
    )
