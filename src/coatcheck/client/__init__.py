"""The client for Coatcheck's HTTP API: `Client`, and `AsyncClient` for asyncio.

Code that waits is written once, in ``_async``. ``scripts/generate_sync_client`` generates ``_sync``
from it; never edit that by hand. All other modules serve both.
"""

from coatcheck.client._async.api_keys import AsyncApiKeys
from coatcheck.client._async.batch import AsyncBatch
from coatcheck.client._async.batches import AsyncBatches
from coatcheck.client._async.client import AsyncClient
from coatcheck.client._async.graphs import AsyncGraphs
from coatcheck.client._async.job import AsyncJob
from coatcheck.client._async.jobs import AsyncJobs
from coatcheck.client._async.webhooks import AsyncWebhooks
from coatcheck.client._sync.api_keys import ApiKeys
from coatcheck.client._sync.batch import Batch
from coatcheck.client._sync.batches import Batches
from coatcheck.client._sync.client import Client
from coatcheck.client._sync.graphs import Graphs
from coatcheck.client._sync.job import Job
from coatcheck.client._sync.jobs import Jobs
from coatcheck.client._sync.webhooks import Webhooks
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
