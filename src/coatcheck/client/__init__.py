"""The client for Coatcheck's HTTP API: `Client`, and `AsyncClient` for asyncio.

Code that waits is written once, in ``_async``. ``scripts/generate_sync_client`` generates ``_sync``
from it; never edit that by hand. All other modules serve both.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from coatcheck.client.answers import BatchStatus, Page, UsageDay
from coatcheck.client.errors import (
    ApiError,
    AuthenticationError,
    BatchFailed,
    ClientError,
    ConflictError,
    ConnectionFailed,
    ErrorDetail,
    ExportFailed,
    InvalidRequestError,
    InvalidWebhook,
    JobFailed,
    NotFoundError,
    PaymentRequiredError,
    PermissionDeniedError,
    RateLimitedError,
    ServerError,
    UnexpectedAnswer,
    WaitTimeout,
)
from coatcheck.client.events import Event
from coatcheck.client.models import (
    ApiKey,
    BatchArtifact,
    BatchBadLine,
    BatchCounts,
    BatchExport,
    BatchIngest,
    BatchRun,
    BatchTask,
    BulkOutcome,
    BulkOutcomes,
    Caller,
    DeadLetter,
    FailureCount,
    FlowBacklog,
    GraphJob,
    JobArtifact,
    JobBlocker,
    JobDetails,
    JobDetailsPage,
    JobError,
    JobEta,
    JobExplanation,
    JobLogEntry,
    JobUrls,
    KeyRate,
    LaneBacklog,
    Overview,
    OverviewPoint,
    Progress,
    QueueBacklog,
    TimelineEntry,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookMessage,
    WebhookSecret,
    WorkerStatus,
)
from coatcheck.client.webhook_signatures import WebhookEvent, verify_webhook

if TYPE_CHECKING:
    from coatcheck.client._async.api_keys import AsyncApiKeys
    from coatcheck.client._async.batches import AsyncBatch, AsyncBatches
    from coatcheck.client._async.client import AsyncClient, AsyncJob
    from coatcheck.client._async.graphs import AsyncGraphs
    from coatcheck.client._async.jobs import AsyncJobs
    from coatcheck.client._async.webhooks import AsyncWebhooks
    from coatcheck.client._sync.api_keys import ApiKeys
    from coatcheck.client._sync.batches import Batch, Batches
    from coatcheck.client._sync.client import Client, Job
    from coatcheck.client._sync.graphs import Graphs
    from coatcheck.client._sync.jobs import Jobs
    from coatcheck.client._sync.webhooks import Webhooks

__all__ = [
    "ApiError",
    "ApiKey",
    "ApiKeys",
    "AsyncApiKeys",
    "AsyncBatch",
    "AsyncBatches",
    "AsyncClient",
    "AsyncGraphs",
    "AsyncJob",
    "AsyncJobs",
    "AsyncWebhooks",
    "AuthenticationError",
    "Batch",
    "BatchArtifact",
    "BatchBadLine",
    "BatchCounts",
    "BatchExport",
    "BatchFailed",
    "BatchIngest",
    "BatchRun",
    "BatchStatus",
    "BatchTask",
    "Batches",
    "BulkOutcome",
    "BulkOutcomes",
    "Caller",
    "Client",
    "ClientError",
    "ConflictError",
    "ConnectionFailed",
    "DeadLetter",
    "ErrorDetail",
    "Event",
    "ExportFailed",
    "FailureCount",
    "FlowBacklog",
    "GraphJob",
    "Graphs",
    "InvalidRequestError",
    "InvalidWebhook",
    "Job",
    "JobArtifact",
    "JobBlocker",
    "JobDetails",
    "JobDetailsPage",
    "JobError",
    "JobEta",
    "JobExplanation",
    "JobFailed",
    "JobLogEntry",
    "JobUrls",
    "Jobs",
    "KeyRate",
    "LaneBacklog",
    "NotFoundError",
    "Overview",
    "OverviewPoint",
    "Page",
    "PaymentRequiredError",
    "PermissionDeniedError",
    "Progress",
    "QueueBacklog",
    "RateLimitedError",
    "ServerError",
    "TimelineEntry",
    "UnexpectedAnswer",
    "UsageDay",
    "WaitTimeout",
    "WebhookDelivery",
    "WebhookEndpoint",
    "WebhookEvent",
    "WebhookMessage",
    "WebhookSecret",
    "Webhooks",
    "WorkerStatus",
    "verify_webhook",
]

_LAZY_IMPORTS = {
    "AsyncApiKeys": "_async.api_keys",
    "AsyncBatch": "_async.batches",
    "AsyncBatches": "_async.batches",
    "AsyncClient": "_async.client",
    "AsyncGraphs": "_async.graphs",
    "AsyncJob": "_async.client",
    "AsyncJobs": "_async.jobs",
    "AsyncWebhooks": "_async.webhooks",
    "ApiKeys": "_sync.api_keys",
    "Batch": "_sync.batches",
    "Batches": "_sync.batches",
    "Client": "_sync.client",
    "Graphs": "_sync.graphs",
    "Job": "_sync.client",
    "Jobs": "_sync.jobs",
    "Webhooks": "_sync.webhooks",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that a program loads one of the two clients, not both.

    A program with ``Client`` does not load asyncio.
    """
    module = _LAZY_IMPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return found
