"""Coatcheck turns slow work into a job API. One PostgreSQL is queue, state and result store."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from coatcheck.version import __version__

if TYPE_CHECKING:
    from coatcheck.client import (
        ApiError,
        AsyncClient,
        AuthenticationError,
        BatchFailed,
        Client,
        ClientError,
        ConflictError,
        ConnectionFailed,
        ExportFailed,
        InvalidRequestError,
        JobFailed,
        NotFoundError,
        PaymentRequiredError,
        PermissionDeniedError,
        RateLimitedError,
        ServerError,
        UnexpectedAnswer,
        WaitTimeout,
    )
    from coatcheck.core import Engine, Submission, Ticket
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
    from coatcheck.settings import Settings

__all__ = [
    "ApiError",
    "Artifact",
    "AsyncClient",
    "AuthenticationError",
    "BatchFailed",
    "Client",
    "ClientError",
    "CoatcheckError",
    "ConcurrencyLimit",
    "ConflictError",
    "ConnectionFailed",
    "Engine",
    "ExportFailed",
    "FailJob",
    "InvalidRequestError",
    "Job",
    "JobAlreadyEnded",
    "JobCancelled",
    "JobEvent",
    "JobFailed",
    "JobNotFound",
    "JobView",
    "Lane",
    "NotFoundError",
    "PaymentRequiredError",
    "PermissionDeniedError",
    "RateLimitedError",
    "RetryLater",
    "ServerError",
    "Service",
    "Settings",
    "State",
    "Submission",
    "TargetUnreachable",
    "Ticket",
    "UnexpectedAnswer",
    "WaitTimeout",
    "__version__",
]

_LAZY_IMPORTS = {
    "ApiError": "coatcheck.client",
    "AsyncClient": "coatcheck.client",
    "AuthenticationError": "coatcheck.client",
    "BatchFailed": "coatcheck.client",
    "Client": "coatcheck.client",
    "ClientError": "coatcheck.client",
    "ConflictError": "coatcheck.client",
    "ConnectionFailed": "coatcheck.client",
    "ExportFailed": "coatcheck.client",
    "InvalidRequestError": "coatcheck.client",
    "JobFailed": "coatcheck.client",
    "NotFoundError": "coatcheck.client",
    "PaymentRequiredError": "coatcheck.client",
    "PermissionDeniedError": "coatcheck.client",
    "RateLimitedError": "coatcheck.client",
    "ServerError": "coatcheck.client",
    "UnexpectedAnswer": "coatcheck.client",
    "WaitTimeout": "coatcheck.client",
    "CoatcheckError": "coatcheck.domain.errors",
    "FailJob": "coatcheck.domain.errors",
    "JobAlreadyEnded": "coatcheck.domain.errors",
    "JobCancelled": "coatcheck.domain.errors",
    "JobNotFound": "coatcheck.domain.errors",
    "RetryLater": "coatcheck.domain.errors",
    "TargetUnreachable": "coatcheck.domain.errors",
    "Artifact": "coatcheck.domain.job",
    "ConcurrencyLimit": "coatcheck.domain.job",
    "JobEvent": "coatcheck.domain.job",
    "JobView": "coatcheck.domain.job",
    "Lane": "coatcheck.domain.lanes",
    "State": "coatcheck.domain.states",
    "Job": "coatcheck.job",
    "Service": "coatcheck.service",
    "Engine": "coatcheck.core",
    "Submission": "coatcheck.core",
    "Ticket": "coatcheck.core",
    "Settings": "coatcheck.settings",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that a handler or command loads only what it needs."""
    module = _LAZY_IMPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(module), name)
    return found
