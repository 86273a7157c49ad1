"""The dependencies of the llm routes, and the lookup of a caller's job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from coatcheck.core import Engine
from coatcheck.domain.errors import JobNotFound, NotFound
from coatcheck.domain.job import JobView
from coatcheck.domain.tenants import Principal
from coatcheck.egress import Guard
from coatcheck.http import parameters
from coatcheck.http.gate import Gate
from coatcheck.http.job_responses import JobResponses
from coatcheck.http.lifecycle import ServerDraining
from coatcheck.http.request import Request
from coatcheck.http.upload_limits import UploadSlots
from coatcheck.products.llm.caller_retries import SynchronousCallers
from coatcheck.products.llm.model import LLM_KINDS
from coatcheck.products.llm.presenter import LlmPresenter
from coatcheck.settings import Settings


class LlmNotConfigured(NotFound):
    """No target is configured. The text says what to set."""

    code = "llm_not_configured"
    public_text = None


LARGE_BODIES_MAX: Final = 8
"""Each needs some 160 MiB while it is read, checked and submitted."""
LARGE_BODIES_OF_ONE_ORG_MAX: Final = 3


def _room() -> UploadSlots:
    return UploadSlots(LARGE_BODIES_MAX, LARGE_BODIES_OF_ONE_ORG_MAX)


@dataclass(frozen=True, slots=True)
class LlmContext:
    """The services that the llm routes use."""

    settings: Settings
    engine: Engine
    gate: Gate
    responses: JobResponses
    presenter: LlmPresenter
    guard: Guard
    """For webhooks."""
    image_guard: Guard
    """For the images that workers fetch."""
    draining: ServerDraining
    callers: SynchronousCallers
    room: UploadSlots = field(default_factory=_room)
    """For large bodies, with images; shared by all routes."""

    def check_configured(self) -> None:
        """Raises LlmNotConfigured if there is no target."""
        if not self.settings.llm_targets:
            raise LlmNotConfigured(
                "No language model is served here: set COATCHECK_LLM_URL to the base URL of an "
                "Ollama-shaped server, or COATCHECK_LLM_TARGETS to several, for servers and "
                "workers alike."
            )

    async def job(self, request: Request) -> JobView:
        """The job that the path names. Raises JobNotFound unless the caller may see it."""
        principal = request.principal
        view = await self.engine.get(request.params["id"], org=principal.org)
        if view.endpoint not in LLM_KINDS or not principal.may_see(view.owner):
            raise JobNotFound("there is no such job")
        return view


def stored_key(principal: Principal, key: str) -> str:
    """The stored form of an idempotency key: separate for each user, shared by all llm routes."""
    return parameters.stored_key("llm", principal, key)
