"""The types of responses: jobs, batches, keys, graphs, overviews, webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar

import msgspec

from coatcheck.client.addresses import Addresses
from coatcheck.client.errors import UnexpectedAnswer

KindT = TypeVar("KindT")


class BatchCounts(msgspec.Struct, frozen=True):
    """Numbers of tasks by status. ``total`` grows while a list is ingested."""

    total: int
    pending: int
    running: int
    succeeded: int
    failed: int
    cancelled: int

    @property
    def ended(self) -> int:
        """How many tasks have ended in any way."""
        return self.succeeded + self.failed + self.cancelled


class BatchIngest(msgspec.Struct, frozen=True):
    """The ingestion of a list: its lines, and how many of them are invalid."""

    lines: int = 0
    bad_lines: int = 0
    error: JobError | None = None


class BatchRun(msgspec.Struct, frozen=True):
    """One run of a batch. A rerun names the run that its tasks come from, and its ``filter``; with
    ``repeats_all`` they come from the whole batch as of that run."""

    id: str
    number: int
    status: str
    counts: BatchCounts
    ingest: BatchIngest
    parent_run_id: str | None = None
    filter: Any = None
    repeats_all: bool = False
    created_at: datetime | None = None
    completed_at: datetime | None = None


class BatchArtifact(msgspec.Struct, frozen=True):
    """A file of a task. Its ``url`` needs no credential, and expires."""

    name: str
    media_type: str
    bytes: int
    sha256: str
    url: str
    expires_at: datetime | None = None


class BatchTask(msgspec.Struct, frozen=True):
    """The state of a task when the server was last asked.

    ``index`` is its position among the valid lines of its run. ``error`` says why it failed. A page
    omits a long ``result``: then there is a ``result_url``, and ``batches.result`` fetches it. Only
    ``batches.task`` returns ``input`` and ``artifacts``. ``expires_at`` is that of its batch, which
    it is deleted with.
    """

    id: str
    index: int
    status: str
    terminal: bool
    job_index: int | None = None
    custom_id: str | None = None
    run_id: str | None = None
    attempts: int = 0
    result: Any = None
    result_url: str | None = None
    error: JobError | None = None
    input: Any = None
    artifacts: tuple[BatchArtifact, ...] = ()
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    expires_at: datetime | None = None


class BatchBadLine(msgspec.Struct, frozen=True):
    """An invalid line of a list: its number, counted from 1, and the reason."""

    line: int
    code: str
    message: str


class BatchExport(msgspec.Struct, frozen=True):
    """A zip of the results and errors of a run, or of the whole batch (``all_runs``). It has a
    ``url`` once it is ``completed``.

    The URL needs no credential, and is valid until ``expires_at``. ``tasks`` is how many it has.
    """

    id: str
    status: str
    terminal: bool
    run_id: str | None = None
    all_runs: bool = False
    tasks: int = 0
    url: str | None = None
    expires_at: datetime | None = None
    bytes: int | None = None
    sha256: str | None = None
    error: JobError | None = None


class DeadLetter(msgspec.Struct, frozen=True):
    """A list that could not be ingested, and waits for a redrive, a rerun or its batch's end.

    ``job_id`` is the batch. ``lines`` and ``tasks`` count what was ingested before it failed.
    """

    id: str
    job_id: str
    run_id: str
    error: JobError
    source: str | None = None
    lines: int = 0
    tasks: int = 0
    redrives: int = 0
    created_at: datetime | None = None
    failed_at: datetime | None = None


class BatchBody:
    """The state of a batch when the server was last asked.

    ``raw`` is the server's JSON. ``etag`` identifies this state. ``replayed``: the idempotency key
    was known, and this is the batch that it created. ``mismatch``: the earlier request with the key
    was different.
    """

    __slots__ = ("etag", "mismatch", "raw", "replayed")

    def __init__(self, raw: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        self.raw: Mapping[str, Any] = {}
        self.etag: str | None = None
        self.learn(raw, headers.get("etag"))
        self.replayed = headers.get("idempotent-replayed") == "true"
        self.mismatch = headers.get("idempotency-mismatch") == "true"

    def learn(self, raw: Mapping[str, Any], etag: str | None) -> None:
        """Update from the server's answer."""
        texts = (raw.get("id"), raw.get("status"))
        if not isinstance(raw.get("terminal"), bool) or not all(isinstance(t, str) for t in texts):
            raise UnexpectedAnswer("the answer is not a batch")
        self.raw = raw
        self.etag = etag

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.status}>"

    @property
    def id(self) -> str:
        """The batch's id, a ULID of 26 characters."""
        text: str = self.raw["id"]
        return text

    @property
    def status(self) -> str:
        """``ingesting``, ``open``, ``running``, ``completed``, ``failed_ingest``, ``cancelled``.

        ``completed`` means that every task has ended in any way: see ``counts``.
        """
        text: str = self.raw["status"]
        return text

    @property
    def terminal(self) -> bool:
        """Whether its current run has ended."""
        ended: bool = self.raw["terminal"]
        return ended

    @property
    def counts(self) -> BatchCounts:
        """The tasks of the current run by status."""
        return self._part("counts", BatchCounts)

    @property
    def job_counts(self) -> BatchCounts:
        """The tasks of the whole batch: each once, by its latest result over all runs."""
        return self._part("job_counts", BatchCounts)

    @property
    def ingest(self) -> BatchIngest:
        """How far the lists of the current run are ingested."""
        return self._part("ingest", BatchIngest)

    @property
    def runs(self) -> tuple[BatchRun, ...]:
        """Its runs, oldest first. A batch from a listing has only the current one."""
        return self._part("runs", tuple[BatchRun, ...])

    @property
    def error(self) -> JobError | None:
        """Why its list could not be ingested, if it failed."""
        return self.ingest.error

    @property
    def progress(self) -> float | None:
        """The fraction of ingested tasks that have ended, from 0 to 1."""
        return self.raw.get("progress")

    @property
    def cancel_requested(self) -> bool:
        """Whether it was cancelled and still has tasks that have not stopped."""
        return self.raw.get("cancel_requested") is True

    @property
    def service(self) -> str | None:
        """The service of its tasks."""
        return self.raw.get("service")

    @property
    def endpoint(self) -> str | None:
        """The endpoint of its tasks."""
        return self.raw.get("endpoint")

    @property
    def is_open(self) -> bool:
        """Whether it accepts tasks until it is closed."""
        return self.raw.get("type") == "open"

    @property
    def metadata(self) -> Any:
        """The metadata that you gave it."""
        return self.raw.get("metadata")

    @property
    def created_at(self) -> datetime | None:
        """When it was submitted."""
        return self._time("created_at")

    @property
    def completed_at(self) -> datetime | None:
        """When its current run ended."""
        return self._time("completed_at")

    @property
    def expires_at(self) -> datetime | None:
        """When the server deletes it and its tasks."""
        return self._time("expires_at")

    def _part(self, name: str, kind: type[KindT]) -> KindT:
        return converted(self.raw.get(name), kind)

    def _time(self, name: str) -> datetime | None:
        text = self.raw.get(name)
        return datetime.fromisoformat(text) if text else None


def converted(raw: Any, kind: type[KindT]) -> KindT:
    """Convert a part of an answer. Fields that a newer server adds are ignored."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise UnexpectedAnswer(f"the answer has no valid {kind}: {error}") from error


class KeyRate(msgspec.Struct, frozen=True):
    """A number of requests per window of seconds."""

    requests: int
    seconds: int


class ApiKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key of an organisation. Only the answer to ``api_keys.create`` has the ``key``."""

    id: str
    org_id: str
    user: str
    name: str
    scopes: tuple[str, ...]
    rate_limit: KeyRate | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    key: str | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.user}>"


class Caller(msgspec.Struct, frozen=True):
    """The owner of a credential. ``kind`` is ``key``, ``user`` (a user's token) or ``service``.

    ``operator``: it may read every organisation of the deployment.
    """

    org_id: str
    kind: str
    user: str | None = None
    key_id: str | None = None
    scopes: tuple[str, ...] = ()
    operator: bool = False


class JobArtifact(msgspec.Struct, frozen=True):
    """A file of a job. Anyone can fetch ``signed_url`` until ``signed_url_expires_at``.

    ``expires_at`` is when it is deleted with its job; None while that is unknown.
    """

    name: str
    media_type: str
    bytes: int
    sha256: str
    created_at: datetime
    expires_at: datetime | None
    url: str
    signed_url: str
    signed_url_expires_at: datetime


class JobArtifacts(msgspec.Struct, frozen=True):
    """The files of a job."""

    items: list[JobArtifact]


GraphOperation = Literal["dependency", "call", "domain", "parse", "supermodel"]


class GraphJob(msgspec.Struct, frozen=True):
    """The state of an archive's analysis when the server was last asked.

    ``status`` is ``pending``, ``processing``, ``completed`` or ``failed``. ``result`` is the graph
    after completion; ``error`` says why it failed.
    """

    id: str
    status: str
    terminal: bool
    operation: str | None = None
    progress: Progress | None = None
    result: Any = None
    error: JobError | None = None


class GraphEnvelope(msgspec.Struct, frozen=True, rename="camel"):
    """The server's answer."""

    status: str
    job_id: str
    terminal: bool = False
    operation: str | None = None
    progress: Progress | None = None
    result: Any = None
    error: str | None = None
    error_code: str | None = None

    def job(self) -> GraphJob:
        """The same as the client's type."""
        error = None
        if self.error is not None:
            error = JobError(self.error_code or "job_failed", self.error)
        return GraphJob(
            self.job_id,
            self.status,
            self.terminal or self.status in ("completed", "failed"),
            self.operation,
            self.progress,
            self.result,
            error,
        )


@dataclass(frozen=True, slots=True)
class JobError:
    """Why the last attempt did not complete."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress that the handler reported: 0 to 1, and a note."""

    fraction: float | None
    note: str | None


@dataclass(frozen=True, slots=True)
class JobUrls:
    """The URLs to read, follow and cancel the job."""

    poll: str
    events: str
    cancel: str


def job_urls(poll: str) -> JobUrls:
    """The URLs of a job of which only the first is known."""
    return JobUrls(poll, f"{poll}/events", f"{poll}/cancel")


class JobBody:
    """The state of a job when the server was last asked.

    A new ticket has little more than ``id``, ``status`` and ``urls``; unknown fields are None.
    ``is_whole`` is false for a ticket, for a job from a listing, and for one whose result was too
    long for an event or a batch status: their result must still be fetched, even if they have ended
    (``get``, ``wait`` and ``result`` do). ``raw`` is the server's JSON. ``etag`` identifies this
    state. ``replayed``: the idempotency key was known, and this is the job that it created.
    ``mismatch``: the earlier request with the key had another payload.
    """

    __slots__ = ("etag", "is_whole", "mismatch", "raw", "replayed", "urls")

    def __init__(
        self,
        raw: Mapping[str, Any],
        headers: Mapping[str, str],
        addresses: Addresses,
        *,
        is_listed: bool = False,
    ) -> None:
        self.raw: Mapping[str, Any] = {}
        self.etag: str | None = None
        self.is_whole: bool = False
        self.learn(raw, headers.get("etag"))
        self.is_whole = self.is_whole and "id" in raw and not is_listed
        self.urls = self._urls(addresses)
        self.replayed = headers.get("idempotent-replayed") == "true"
        self.mismatch = headers.get("idempotency-mismatch") == "true"

    def learn(self, raw: Mapping[str, Any], etag: str | None) -> None:
        """Update from the server's answer."""
        if not isinstance(raw.get("terminal"), bool):
            raise UnexpectedAnswer("the answer is not a job")
        self.raw = raw
        self.etag = etag
        self.is_whole = not raw.get("result_omitted", False)
        self._text("status")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.status}>"

    @property
    def id(self) -> str:
        """The job's id, a ULID of 26 characters."""
        return self._text("id" if "id" in self.raw else "job_id")

    @property
    def status(self) -> str:
        """The job's status. A newer server may use one that this client does not know."""
        return self._text("status")

    @property
    def terminal(self) -> bool:
        """Whether the job has ended."""
        ended: bool = self.raw["terminal"]
        return ended

    @property
    def result(self) -> Any:
        """What the handler returned; None until the job has completed, or if it was omitted."""
        return self.raw.get("result_summary")

    @property
    def error(self) -> JobError | None:
        """Why the last attempt did not complete."""
        error = self.raw.get("last_error")
        return JobError(error["code"], error["message"]) if error else None

    @property
    def progress(self) -> Progress | None:
        """The latest progress that the handler reported."""
        progress = self.raw.get("progress")
        return Progress(progress["fraction"], progress["note"]) if progress else None

    @property
    def attempt_count(self) -> int | None:
        """The number of attempts, including the current one."""
        return self.raw.get("attempt_count")

    @property
    def lane(self) -> str | None:
        """``urgent``, ``standard`` or ``bulk``."""
        return self.raw.get("lane")

    @property
    def endpoint_key(self) -> str | None:
        """The endpoint, such as ``post__analyze``."""
        return self.raw.get("endpoint_key")

    @property
    def idempotency_key(self) -> str | None:
        """The idempotency key that the job was submitted with."""
        return self.raw.get("idempotency_key")

    @property
    def stalled_reason(self) -> str | None:
        """Why the job waits or runs longer than it should; None if it does not."""
        return self.raw.get("stalled_reason")

    @property
    def created_at(self) -> datetime | None:
        """When the job was submitted."""
        return self._time("created_at")

    @property
    def started_at(self) -> datetime | None:
        """When its handler started."""
        return self._time("started_at")

    @property
    def completed_at(self) -> datetime | None:
        """When it ended in any way."""
        return self._time("completed_at")

    @property
    def expires_at(self) -> datetime | None:
        """When the server deletes it."""
        return self._time("expires_at")

    def _urls(self, addresses: Addresses) -> JobUrls:
        if "poll_url" not in self.raw:
            return job_urls(addresses.job(self._text("service_id"), self.id))
        names = ("poll_url", "events_url", "cancel_url")
        return JobUrls(*(addresses.named(self._text(name)) for name in names))

    def _time(self, name: str) -> datetime | None:
        text = self.raw.get(name)
        return datetime.fromisoformat(text) if text else None

    def _text(self, name: str) -> str:
        value = self.raw.get(name)
        if not isinstance(value, str):
            raise UnexpectedAnswer(f"the answer has a job without {name}")
        return value


class JobDetails(msgspec.Struct, frozen=True):
    """The state of a job of any API, in the engine's terms, when the server was last asked.

    ``surface`` is the API it was submitted through, ``endpoint`` the public name of what it does;
    ``lane`` and ``state`` are the engine's. ``attempts`` were started; of these ``failures`` count
    against ``failures_max``, while ``crashes``, ``interruptions`` and ``unreachables`` do not. Only
    ``jobs.get`` returns the ``result``, and only if it is not too long (``result_truncated``).
    ``input_kept`` says whether it can be retried; ``retry_of`` and ``retried_as`` name the related
    jobs. ``urls`` has its other URLs, ``raw`` the server's JSON.
    """

    id: str
    state: str
    terminal: bool
    org_id: str = ""
    surface: str = ""
    service: str | None = None
    endpoint: str = ""
    engine_endpoint: str = ""
    lane: str = ""
    owner: str | None = None
    batch_id: str | None = None
    task_id: str | None = None
    attempts: int = 0
    failures: int = 0
    failures_max: int | None = None
    crashes: int = 0
    interruptions: int = 0
    unreachables: int = 0
    progress: Progress | None = None
    error: JobError | None = None
    idempotency_key: str | None = None
    request_id: str | None = None
    trace_id: str | None = None
    execution_id: str | None = None
    created_at: datetime | None = None
    run_at: datetime | None = None
    dispatched_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    updated_at: datetime | None = None
    expires_at: datetime | None = None
    start_deadline: datetime | None = None
    input_kept: bool = False
    retry_of: str | None = None
    retried_as: str | None = None
    result: Any = None
    result_bytes: int | None = None
    result_truncated: bool = False
    urls: dict[str, str | None] = {}
    raw: dict[str, Any] = {}

    @property
    def status(self) -> str:
        """The same as ``state``, under the name that other job types use."""
        return self.state


def job_details(raw: dict[str, Any]) -> JobDetails:
    """The job in an answer."""
    return msgspec.structs.replace(converted(raw, JobDetails), raw=raw)


class JobDetailsPage(msgspec.Struct, frozen=True):
    """A page of an organisation's jobs, newest first. ``next`` is the cursor of the next page.

    A page may be short, or even empty, and still have a ``next``: the server examines a limited
    number of jobs per page.
    """

    items: tuple[JobDetails, ...]
    next: str | None = None


class TimelineEntry(msgspec.Struct, frozen=True):
    """An event in a job's history, and its time."""

    at: datetime
    kind: str
    state: str | None = None
    attempt: int | None = None
    code: str | None = None
    message: str | None = None


class JobLogEntry(msgspec.Struct, frozen=True):
    """A line of a job's log: a message of its handler, an alert, or a failed attempt.

    Pass ``seq`` to ``jobs.log(..., after=seq)`` to continue after it.
    """

    seq: int
    at: datetime
    kind: str
    message: str = ""
    level: str | None = None
    data: Any = None


class JobBlocker(msgspec.Struct, frozen=True):
    """One reason why a job waits.

    ``kind`` is stable, ``message`` a sentence. A limit has its ``key``, its ``limit``, the number
    ``held``, and some of the jobs that hold it (``holders``).
    """

    kind: str
    message: str
    key: str | None = None
    limit: float | None = None
    held: float | None = None
    holders: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None


class JobEta(msgspec.Struct, frozen=True):
    """When a job will probably start and end, in seconds from now: the median (``p50``) and the
    90th percentile (``p90``)."""

    start_p50: float | None = None
    start_p90: float | None = None
    end_p50: float | None = None
    end_p90: float | None = None


class JobExplanation(msgspec.Struct, frozen=True):
    """Why a job is in its state: a ``summary`` sentence, and each of its ``blockers``.

    ``position`` is its position in its queue, 1 for the next. ``retry_after`` is the number of
    seconds after which asking again is worthwhile.
    """

    job_id: str
    state: str
    terminal: bool
    summary: str
    blockers: tuple[JobBlocker, ...] = ()
    position: int | None = None
    eta: JobEta | None = None
    retry_after: float | None = None


class BulkOutcome(msgspec.Struct, frozen=True):
    """The outcome for one of many jobs: ``new_id`` if it was retried, ``code`` and ``message`` if
    it was refused."""

    id: str
    ok: bool
    new_id: str | None = None
    code: str | None = None
    message: str | None = None


class BulkOutcomes(msgspec.Struct, frozen=True):
    """The outcomes for many jobs. ``more``: other jobs match the filter, and are untouched."""

    items: tuple[BulkOutcome, ...]
    more: bool = False


class TimelineAnswer(msgspec.Struct, frozen=True):
    """The server's answer."""

    items: tuple[TimelineEntry, ...]


class LogAnswer(msgspec.Struct, frozen=True):
    """The server's answer."""

    items: tuple[JobLogEntry, ...]
    next: int | str | None = None


class OverviewPoint(msgspec.Struct, frozen=True):
    """What happened in a time span that begins ``at``.

    Latencies are in seconds: from due to claimed (``start``), and in the handler (``run``); None
    if there were none.
    """

    at: datetime
    submitted: int = 0
    started: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    rescued: int = 0
    start_p50: float | None = None
    start_p99: float | None = None
    run_p50: float | None = None
    run_p99: float | None = None


class LaneBacklog(msgspec.Struct, frozen=True):
    """The number of jobs of a lane by state. ``held`` are with a worker.

    Unless ``exact``, more are queued than the server has counted.
    """

    lane: str
    staged: int = 0
    queued: int = 0
    retrying: int = 0
    held: int = 0
    oldest_queued_seconds: float | None = None
    exact: bool = True


class QueueBacklog(msgspec.Struct, frozen=True):
    """One of the longest queues: of an organisation's service, model or batch.

    Only for callers with the scope ``admin``. Unless ``exact``, more are queued than counted.
    JSON calls the queue key ``flow``.
    """

    org_id: str
    queue_key: str = msgspec.field(name="flow")
    label: str
    lane: str
    queued: int = 0
    held: int = 0
    endpoint: str = ""
    exact: bool = True

    @property
    def flow(self) -> str:
        """The old name of ``queue_key``, removed with 0.1.0."""
        return self.queue_key


FlowBacklog = QueueBacklog
"""The old name of ``QueueBacklog``, removed with 0.1.0."""


class FailureCount(msgspec.Struct, frozen=True):
    """How many jobs failed with a code."""

    code: str
    count: int


class WorkerStatus(msgspec.Struct, frozen=True):
    """A worker, for operators. ``held`` is how many jobs it has, ``slots`` how many it runs at once
    in each of its ``lanes``."""

    boot: int
    name: str = ""
    version: str = ""
    alive: bool = True
    started_at: datetime | None = None
    last_seen_at: datetime | None = None
    lanes: tuple[str, ...] = ()
    slots: tuple[int, ...] = ()
    endpoints: tuple[str, ...] = ()
    held: int = 0


class Overview(msgspec.Struct, frozen=True):
    """A summary of an organisation; ``org_id`` is ``*`` for all of them.

    ``series`` has a point for each ``bucket_seconds``, oldest first. ``queues`` (``flows`` in JSON)
    are the longest. Only operators see ``workers``; everybody sees ``workers_alive``.
    """

    org_id: str
    generated_at: datetime
    bucket_seconds: float
    series: tuple[OverviewPoint, ...] = ()
    lanes: tuple[LaneBacklog, ...] = ()
    queues: tuple[QueueBacklog, ...] = msgspec.field(default=(), name="flows")
    failures: tuple[FailureCount, ...] = ()
    workers_alive: int = 0
    workers: tuple[WorkerStatus, ...] = ()

    @property
    def flows(self) -> tuple[QueueBacklog, ...]:
        """The old name of ``queues``, removed with 0.1.0."""
        return self.queues


class WebhookEndpoint(msgspec.Struct, frozen=True):
    """A receiver and its events. ``status`` is ``active``, ``paused``, or ``disabled`` after a 410.

    ``url`` is None if it is ``pulled``: then nothing is posted, and ``webhooks.take`` fetches the
    messages. Only the answer to ``webhooks.create`` has the ``secret``.
    """

    id: str
    url: str | None
    events: tuple[str, ...]
    status: str
    description: str = ""
    pulled: bool = False
    created_at: datetime | None = None
    paused_at: datetime | None = None
    disabled_at: datetime | None = None
    secret: str | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.status}>"


class WebhookSecret(msgspec.Struct, frozen=True):
    """A signing secret. After a rotation ``previous`` stays valid until ``previous_expires_at``."""

    secret: str
    previous: str | None = None
    previous_expires_at: datetime | None = None
    generation: int | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of generation {self.generation}>"


class WebhookDelivery(msgspec.Struct, frozen=True):
    """One message to one receiver. ``id`` is its ``webhook-id``.

    ``status`` is ``pending``, ``delivered``, ``exhausted`` or ``disabled``. ``paused``: it waits
    for its endpoint to be resumed.
    """

    id: str
    event: str
    status: str
    subject: str = "job"
    job_id: str | None = None
    endpoint_id: str | None = None
    url: str | None = None
    paused: bool = False
    tries: int = 0
    last_status_code: int | None = None
    last_error: str | None = None
    last_try_at: datetime | None = None
    next_try_at: datetime | None = None
    created_at: datetime | None = None
    ended_at: datetime | None = None


class WebhookMessage(msgspec.Struct, frozen=True):
    """A pulled message, to be posted with its ``headers`` and ``body`` unchanged.

    Pass it to ``webhooks.report`` with the outcome before its lease expires.
    """

    id: str
    event: str
    headers: dict[str, str]
    body: str
    lease: str
    job_id: str | None = None
    tries: int = 0


class WebhookEndpointList(msgspec.Struct, frozen=True):
    """All endpoints."""

    items: tuple[WebhookEndpoint, ...]


class TakenMessages(msgspec.Struct, frozen=True):
    """The messages fetched."""

    messages: tuple[WebhookMessage, ...]


class NotedReports(msgspec.Struct, frozen=True):
    """The messages whose lease still held."""

    noted: tuple[str, ...]


class ReplayedDeliveries(msgspec.Struct, frozen=True):
    """How many are sent again, and the cursor if there are more."""

    replayed: int
    next: str | None = None
