"""Which surface speaks for a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from coatcheck.control.job_desks import JobDesk, SurfaceName
from coatcheck.domain.console import ConsoleJob
from coatcheck.domain.endpoint_names import (
    BATCHES_SERVICE,
    GRAPHS_SERVICE,
    LLM_SERVICE,
    SPEECH_SERVICE,
)

OWN_SERVICES: Final[Mapping[SurfaceName, str]] = {
    "graphs": GRAPHS_SERVICE,
    "batches": BATCHES_SERVICE,
    "llm": LLM_SERVICE,
    "speech": SPEECH_SERVICE,
}
"""The services that stand for a surface each. Every other service is the gateway's."""
SURFACES: Final[Sequence[SurfaceName]] = ("gateway", *OWN_SERVICES)


class JobDesks:
    """The desks of all surfaces."""

    def __init__(self, desks: Sequence[JobDesk]) -> None:
        self.all = {desk.surface: desk for desk in desks}
        self._by_service = {
            service: self.all[surface]
            for surface, service in OWN_SERVICES.items()
            if surface in self.all
        }

    def of(self, job: ConsoleJob) -> JobDesk:
        """The one that speaks for a job."""
        if job.task is not None:
            return self.all["batches"]
        return self._by_service.get(job.service, self.all["gateway"])
