"""Data types for batches and their parts: runs, tasks, exports."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from coatcheck.client.errors import UnexpectedAnswer
from coatcheck.client.job_body import JobError

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
