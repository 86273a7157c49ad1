"""Coatcheck turns slow work into a job API. One PostgreSQL is queue, state and result store."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from coatcheck.domain.errors import (
    CoatcheckError,
    FailJob,
    JobAlreadyEnded,
    JobCancelled,
    JobNotFound,
    RetryLater,
    TargetUnreachable,
)
from coatcheck.domain.job import Artifact, ConcurrencyLimit, JobEvent, JobView
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from coatcheck.job import Job
from coatcheck.service import Service
from coatcheck.version import __version__

if TYPE_CHECKING:
    from coatcheck.engine import Engine, Submission, Ticket
    from coatcheck.settings import Settings

__all__ = [
    "Artifact",
    "CoatcheckError",
    "ConcurrencyLimit",
    "Engine",
    "FailJob",
    "Job",
    "JobAlreadyEnded",
    "JobCancelled",
    "JobEvent",
    "JobNotFound",
    "JobView",
    "Lane",
    "RetryLater",
    "Service",
    "Settings",
    "State",
    "Submission",
    "TargetUnreachable",
    "Ticket",
    "__version__",
]

_WHEN_FIRST_USED = {
    "Engine": "coatcheck.engine",
    "Submission": "coatcheck.engine",
    "Ticket": "coatcheck.engine",
    "Settings": "coatcheck.settings",
}


def __getattr__(name: str) -> Any:
    """Import what a handler's module does not need, and an isolated handler would pay for, late."""
    module = _WHEN_FIRST_USED.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)
