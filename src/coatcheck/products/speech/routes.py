"""All routes of speech."""

from __future__ import annotations

from coatcheck.http.context import ServerContext
from coatcheck.http.routing import Route
from coatcheck.products.speech import generation_routes, submit_routes, voice_routes
from coatcheck.products.speech.jobs import SpeechJobs


def routes(server: ServerContext) -> list[Route]:
    """Every route of the product."""
    jobs = SpeechJobs(server)
    return [
        *voice_routes.routes(jobs),
        *submit_routes.routes(jobs),
        *jobs.list_routes(),
        *jobs.routes(),
        *generation_routes.routes(jobs),
    ]
