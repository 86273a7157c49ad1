"""The dependencies of the llm routes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from coatcheck.core import Engine
from coatcheck.domain.errors import NotFound
from coatcheck.egress import Guard
from coatcheck.http.gate import Gate
from coatcheck.http.lifecycle import ServerDraining
from coatcheck.http.upload_limits import UploadSlots
from coatcheck.products.llm.caller_retries import SynchronousCallers
from coatcheck.products.llm.jobs import LlmJobs
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
    jobs: LlmJobs
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
