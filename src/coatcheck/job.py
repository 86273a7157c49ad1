"""The ``Job`` object that a handler receives: its identity, its reports and its cancellation.

A handler gets it by declaring a parameter annotated ``Job``.

    async def analyze(job: Job, content: str) -> dict:
        await job.progress(0.5, "halfway")

Reports (``progress``, ``log``, ``emit``, ``attach``) are sent at once. In an async handler, await
them: that slows down a handler that reports faster than its reports can be stored. A handler that
does not await them gets ``ReportsNotAwaited`` when too many bytes are pending. In a plain function,
just call them: the call blocks for as long as it must. Everything reported before the handler
returned is stored before the job is finished.
"""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, NoReturn, Protocol, final
from uuid import UUID

import msgspec

from coatcheck.domain import ids
from coatcheck.domain.errors import FailJob, JobCancelled, JobParked, RetryLater
from coatcheck.domain.failures import CoreFailure
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import (
    ARTIFACT_BYTES_MAX,
    ARTIFACT_NAME_CHARACTERS_MAX,
    LOG_LINE_CHARACTERS_MAX,
    OUTPUT_CHUNK_BYTES_MAX,
    PROGRESS_NOTE_CHARACTERS_MAX,
    REPORT_OVERHEAD_BYTES,
)
from coatcheck.encoding import encode

if TYPE_CHECKING:
    import asyncio

    from coatcheck.domain.remote_work import RemoteWork

LogLevel = Literal["debug", "info", "warning", "error"]
LOG_LEVELS: Final[tuple[LogLevel, ...]] = ("debug", "info", "warning", "error")

RETRY_AFTER_SECONDS_MAX: Final = 30 * 86_400.0
"""The longest delay a handler may ask for: 30 days."""

_MEDIA_TYPE_CHARACTERS_MAX: Final = 255


def storable_text(text: str) -> str:
    """The text without what PostgreSQL cannot store: NUL, and half a surrogate pair."""
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


class ProgressReport(msgspec.Struct, frozen=True, tag="progress"):
    """How far the job has come, from 0 to 1."""

    fraction: float
    note: str | None = None

    def __post_init__(self) -> None:
        # Written so that NaN fails too.
        if not 0.0 <= self.fraction <= 1.0:
            raise ValueError("progress must be a fraction from 0 to 1")
        if self.note is not None:
            _check_text("a progress note", self.note, PROGRESS_NOTE_CHARACTERS_MAX)


class LogLine(msgspec.Struct, frozen=True, tag="log"):
    """One line for the job's log. ``fields`` holds plain JSON values."""

    message: str
    level: LogLevel = "info"
    fields: dict[str, Any] = {}

    def __post_init__(self) -> None:
        _check_text("a log line", self.message, LOG_LINE_CHARACTERS_MAX)


class Chunk(msgspec.Struct, frozen=True, tag="chunk"):
    """A piece of the job's output: text as UTF-8, JSON as JSON, or bytes as they are."""

    kind: Literal["text", "json", "binary"]
    data: bytes

    def __post_init__(self) -> None:
        if len(self.data) > OUTPUT_CHUNK_BYTES_MAX:
            raise ValueError(
                f"an output chunk may have at most {OUTPUT_CHUNK_BYTES_MAX} bytes, not"
                f" {len(self.data)}; emit it in pieces"
            )


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file to keep with the job. The size of a file object is known only after reading it."""

    name: str
    media_type: str
    data: bytes | Path | BinaryIO

    def __post_init__(self) -> None:
        _check_artifact_name(self.name)
        _check_media_type(self.media_type)
        _check_artifact_size(self.data)


Report = ProgressReport | LogLine | Chunk | Attachment


def bytes_held(report: Report) -> int:
    """About how much memory a report takes until it is stored. Attachments are streamed."""
    match report:
        case Chunk(data=data):
            return len(data) + REPORT_OVERHEAD_BYTES
        case LogLine(message=message):
            return len(message) + REPORT_OVERHEAD_BYTES
        case _:
            return 0


class Reporter(Protocol):
    """Receives reports. Belongs to the worker; handlers never see it."""

    def report(self, report: Report) -> Awaitable[None]:
        """Accept the report at once; the returned awaitable ends when there is room for more.

        Callers may drop it without awaiting it, so it is not a bare coroutine. For an
        ``Attachment`` it ends when all data has been read: only then may the file be deleted.
        """
        ...


@final
class _Done:
    """An awaitable that is already done, and that nobody has to await."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield  # makes this a generator


DONE: Final[Awaitable[None]] = _Done()


class Job:
    """The running job, as its handler sees it.

    ``id`` is the ULID that the caller received; ``attempt`` counts from 1; ``request_id`` is the
    caller's, if it sent one; ``temp_dir`` is a private folder that is deleted when the job ends and
    exists only for isolated handlers (it is also their working folder and ``TMPDIR``).
    """

    __slots__ = (
        "_cancel_event",
        "_cancel_requested",
        "_hand_over",
        "_id",
        "_on_started",
        "_reporter",
        "attempt",
        "endpoint",
        "lane",
        "org",
        "payload_size",
        "request_id",
        "temp_dir",
        "uuid",
    )

    def __init__(
        self,
        uuid: UUID,
        org: str,
        endpoint: str,
        lane: Lane,
        attempt: int,
        payload_size: int,
        request_id: str | None,
        reporter: Reporter,
        temp_dir: Path | None = None,
    ) -> None:
        self.uuid = uuid
        self.org = org
        self.endpoint = endpoint
        self.lane = lane
        self.attempt = attempt
        self.payload_size = payload_size
        self.request_id = request_id
        self.temp_dir = temp_dir
        self._reporter = reporter
        self._id: str | None = None
        self._on_started: Callable[[], None] | None = None
        self._hand_over: Callable[[RemoteWork], Awaitable[None]] | None = None
        self._cancel_requested = False
        self._cancel_event: asyncio.Event | None = None

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.endpoint} attempt {self.attempt}>"

    @property
    def id(self) -> str:
        text = self._id
        if text is None:
            text = self._id = ids.to_text(self.uuid)
        return text

    # Reports

    def started(self) -> Awaitable[None]:
        """Report that the actual work has begun, in an endpoint declared with ``starts_itself``.

        From now on the job shows as ``processing``. There is nothing to wait for.
        """
        if self._on_started is not None:
            self._on_started()
        return DONE

    def progress(self, fraction: float, note: str | None = None) -> Awaitable[None]:
        """Report progress: ``fraction`` from 0 to 1, and a note of at most 1,000 characters.

        Only the latest is kept.
        """
        return self._reporter.report(
            ProgressReport(float(fraction), None if note is None else storable_text(note))
        )

    def log(self, message: str, *, level: LogLevel = "info", **fields: Any) -> Awaitable[None]:
        """Add a line to the job's log, which the caller can read.

        ``level`` is debug, info, warning or error. ``fields`` are any values that fit JSON. The
        message may have at most 8,000 characters, and so may the fields together.
        """
        if level not in LOG_LEVELS:
            raise ValueError(f"level must be one of {', '.join(LOG_LEVELS)}, not {level!r}")
        return self._reporter.report(
            LogLine(storable_text(message), level, _plain_fields(fields) if fields else {})
        )

    def emit(self, chunk: Any) -> Awaitable[None]:
        """Send a piece of output now: text, bytes, or any value that fits JSON, up to 256 KiB.

        Callers that follow the job receive the chunks as they come, in this order.
        """
        return self._reporter.report(_as_chunk(chunk))

    def attach(
        self,
        name: str,
        data: bytes | bytearray | memoryview | Path | BinaryIO,
        *,
        media_type: str = "application/octet-stream",
    ) -> Awaitable[None]:
        """Keep a file with the job: bytes, the path of a file, or a file opened for bytes.

        A second attachment with the same name replaces the first. An async handler that deletes or
        closes the file afterwards must await this first.
        """
        if isinstance(data, (bytearray, memoryview)):
            data = bytes(data)
        return self._reporter.report(Attachment(name, media_type, data))

    # Ways to end the job other than returning

    def retry(
        self, reason: str, *, after: float | None = None, code: str = CoreFailure.RETRY_LATER
    ) -> NoReturn:
        """Stop here and try again after ``after`` seconds (or the usual backoff).

        This spends an attempt: when none is left, the job fails with this reason.
        """
        if after is not None and not 0.0 <= after <= RETRY_AFTER_SECONDS_MAX:
            raise ValueError(f"after must be from 0 to {RETRY_AFTER_SECONDS_MAX:.0f} seconds")
        raise RetryLater(reason, after=after, code=code)

    def fail(self, reason: str, *, code: str = CoreFailure.JOB_FAILED) -> NoReturn:
        """Stop here and fail for good, without retries. The caller sees ``code`` and ``reason``."""
        raise FailJob(reason, code=code)

    async def hand_over(self, work: RemoteWork) -> NoReturn:
        """Give the work to a remote provider and stop here: for Coatcheck's own handlers.

        The job stays ``processing`` without a worker until the remote is done.
        """
        if self._hand_over is None:
            raise RuntimeError("this worker cannot hand work over to a remote")
        await self._hand_over(work)
        raise JobParked

    # Cancellation

    @property
    def cancel_requested(self) -> bool:
        """Whether cancellation was requested. A handler that checks it can stop cleanly."""
        return self._cancel_requested

    def check_cancelled(self) -> None:
        """Stop here if cancellation was requested: raises ``JobCancelled``, which ends the job."""
        if self.cancel_requested:
            raise JobCancelled

    async def wait_cancelled(self) -> None:
        """Return once cancellation is requested. For async handlers."""
        if self.cancel_requested:
            return
        if self._cancel_event is None:
            # Imported late: the process of an isolated plain function starts without asyncio.
            import asyncio

            self._cancel_event = asyncio.Event()
        await self._cancel_event.wait()

    # For the worker

    def mark_cancel_requested(self) -> None:
        """For the worker, on its event loop: tell the handler that it should stop."""
        self._cancel_requested = True
        if self._cancel_event is not None:
            self._cancel_event.set()

    @property
    def reporter(self) -> Reporter:
        """For the worker: where this job's reports go."""
        return self._reporter

    def tell_start(self, on_started: Callable[[], None]) -> None:
        """For the worker, on its event loop: what to call when the handler reports its start."""
        self._on_started = on_started

    def hand_over_through(self, hand_over: Callable[[RemoteWork], Awaitable[None]]) -> None:
        """For the worker: how work is given to a remote."""
        self._hand_over = hand_over

    def report_through(self, reporter: Reporter) -> None:
        """For the worker: send reports there from now on."""
        self._reporter = reporter


def _check_text(what: str, text: str, characters_max: int) -> None:
    if len(text) > characters_max:
        raise ValueError(f"{what} may have at most {characters_max} characters, not {len(text)}")
    if "\x00" in text:
        raise ValueError(f"{what} must not contain a NUL character")


def _check_artifact_name(name: str) -> None:
    if not 0 < len(name) <= ARTIFACT_NAME_CHARACTERS_MAX:
        raise ValueError(
            f"an attachment's name must have 1 to {ARTIFACT_NAME_CHARACTERS_MAX} characters,"
            f" not {len(name)}"
        )
    if name in {".", ".."} or "/" in name or "\\" in name or not name.isprintable():
        raise ValueError(
            "an attachment's name must be a plain file name: no slash, no backslash, no unprintable"
            " character, not '.' or '..'"
        )


def _check_media_type(media_type: str) -> None:
    well_formed = (
        "/" in media_type[1:-1]
        and media_type.isascii()
        and media_type.isprintable()
        and len(media_type) <= _MEDIA_TYPE_CHARACTERS_MAX
    )
    if not well_formed:
        raise ValueError("a media type looks like 'text/plain' and has at most 255 characters")


def _check_artifact_size(data: object) -> None:
    if isinstance(data, bytes):
        size = len(data)
    elif isinstance(data, Path):
        if not data.is_file():
            raise ValueError("an attachment's path must name an existing file")
        size = data.stat().st_size
    elif isinstance(data, io.TextIOBase):
        raise TypeError("an attached file must be opened for bytes (mode 'rb'), not for text")
    elif hasattr(data, "read"):
        return
    else:
        raise TypeError(f"attach takes bytes, a Path or a file, not {type(data).__name__}")
    if size > ARTIFACT_BYTES_MAX:
        raise ValueError(f"an attachment may have at most {ARTIFACT_BYTES_MAX} bytes, not {size}")


def _plain_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields as plain JSON values, unaffected by later changes that the handler makes."""
    encoded = encode(fields)
    if len(encoded) > LOG_LINE_CHARACTERS_MAX:
        raise ValueError(
            f"the fields of a log line may have at most {LOG_LINE_CHARACTERS_MAX} bytes as JSON,"
            f" not {len(encoded)}"
        )
    plain: dict[str, Any] = msgspec.json.decode(encoded.replace(b"\\u0000", b"\\ufffd"))
    return plain


def _as_chunk(value: Any) -> Chunk:
    if isinstance(value, str):
        return Chunk("text", value.encode("utf-8", "replace"))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return Chunk("binary", bytes(value))
    return Chunk("json", encode(value))
