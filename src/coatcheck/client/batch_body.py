"""What the server last said of a batch, and of what belongs to it: runs, tasks, exports."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from coatcheck.client.errors import UnexpectedAnswer
from coatcheck.client.job_body import JobError

KindT = TypeVar("KindT")


class BatchCounts(msgspec.Struct, frozen=True):
    """Tasks by where they stand. ``total`` grows while a list is taken in."""

    total: int
    pending: int
    running: int
    succeeded: int
    failed: int
    cancelled: int

    @property
    def ended(self) -> int:
        """How many have ended, whichever way."""
        return self.succeeded + self.failed + self.cancelled


class BatchIngest(msgspec.Struct, frozen=True):
    """How much of the list was taken in: its lines, and those of them that are no tasks."""

    lines: int = 0
    bad_lines: int = 0
    error: JobError | None = None


class BatchRun(msgspec.Struct, frozen=True):
    """One run of a batch. A rerun names the run whose tasks it took, and by which ``filter``; with
    ``repeats_all`` it took them of the batch as a whole, as of that run."""

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
    """A file that a task has left. Its ``url`` needs no credential, and is good for a while."""

    name: str
    media_type: str
    bytes: int
    sha256: str
    url: str
    expires_at: datetime | None = None


class BatchTask(msgspec.Struct, frozen=True):
    """A task of a batch as it was when the server was asked.

    ``index`` is its place among the usable lines of its run. ``error`` says why it failed. A long
    ``result`` is left out of a page: then there is a ``result_url``, and ``batches.result`` gets
    it. ``input`` and ``artifacts`` are shown by ``batches.task`` only. ``expires_at`` is its
    batch's, with which it goes.
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
    """A line of a list that is no task: its number, counted from 1, and why."""

    line: int
    code: str
    message: str


class BatchExport(msgspec.Struct, frozen=True):
    """A zip of the results and errors of a run, or of the batch as a whole (``all_runs``). ``url``
    is there once it is ``completed``.

    The URL needs no credential, and is good until ``expires_at``. ``tasks`` is how many are in it.
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
    """A list that could not be taken in, and waits for a redrive, a rerun or its batch's end.

    ``job_id`` is the batch. ``lines`` and ``tasks`` are what was taken in before it failed.
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
    """A batch as it was when the server was last asked.

    ``raw`` is the server's own JSON. ``etag`` stands for this state of the batch. ``replayed``:
    the idempotency key was known, and this is the batch that it made. ``mismatch``: the key came
    with something else then.
    """

    __slots__ = ("etag", "mismatch", "raw", "replayed")

    def __init__(self, raw: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        self.raw: Mapping[str, Any] = {}
        self.etag: str | None = None
        self.learn(raw, headers.get("etag"))
        self.replayed = headers.get("idempotent-replayed") == "true"
        self.mismatch = headers.get("idempotency-mismatch") == "true"

    def learn(self, raw: Mapping[str, Any], etag: str | None) -> None:
        """Take over what the server says now."""
        texts = (raw.get("id"), raw.get("status"))
        if not isinstance(raw.get("terminal"), bool) or not all(isinstance(t, str) for t in texts):
            raise UnexpectedAnswer("the answer does not show a batch")
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

        ``completed`` means that every task has ended, whatever its end: look at ``counts``.
        """
        text: str = self.raw["status"]
        return text

    @property
    def terminal(self) -> bool:
        """Whether its current run has come to its end."""
        ended: bool = self.raw["terminal"]
        return ended

    @property
    def counts(self) -> BatchCounts:
        """The tasks of the current run, by where they stand."""
        return self._part("counts", BatchCounts)

    @property
    def job_counts(self) -> BatchCounts:
        """The tasks of the batch as a whole: each once, by its latest result over all runs."""
        return self._part("job_counts", BatchCounts)

    @property
    def ingest(self) -> BatchIngest:
        """How far the lists of the current run were taken in."""
        return self._part("ingest", BatchIngest)

    @property
    def runs(self) -> tuple[BatchRun, ...]:
        """Its runs, the oldest first. A batch of a listing shows the current one only."""
        return self._part("runs", tuple[BatchRun, ...])

    @property
    def error(self) -> JobError | None:
        """Why its list could not be taken in, if it could not."""
        return self.ingest.error

    @property
    def progress(self) -> float | None:
        """How much of what was taken in has ended, from 0 to 1."""
        return self.raw.get("progress")

    @property
    def cancel_requested(self) -> bool:
        """Whether it was cancelled, and has tasks that have not stopped yet."""
        return self.raw.get("cancel_requested") is True

    @property
    def service(self) -> str | None:
        """The service that its tasks go to."""
        return self.raw.get("service")

    @property
    def endpoint(self) -> str | None:
        """The endpoint that its tasks go to."""
        return self.raw.get("endpoint")

    @property
    def is_open(self) -> bool:
        """Whether it was made to take tasks until it is closed."""
        return self.raw.get("type") == "open"

    @property
    def metadata(self) -> Any:
        """What you gave it to keep."""
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
        """When the server forgets it and its tasks."""
        return self._time("expires_at")

    def _part(self, name: str, kind: type[KindT]) -> KindT:
        return converted(self.raw.get(name), kind)

    def _time(self, name: str) -> datetime | None:
        text = self.raw.get(name)
        return datetime.fromisoformat(text) if text else None


def converted(raw: Any, kind: type[KindT]) -> KindT:
    """A part of an answer, as what it is. Fields that a newer server adds are left out."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise UnexpectedAnswer(f"the answer shows no {kind}: {error}") from error
