"""The messages between a worker and an isolated job's process, and their framing.

The two share one stream socket. A frame is a length of four bytes and a MessagePack message (which,
unlike JSON, carries raw bytes). The worker starts with ``Start`` and may send ``Cancel``. The
process sends reports as they occur; the worker answers each attachment with ``Attached`` once it
has read the file. The process ends with ``ExecutionEnded``.
"""

from __future__ import annotations

from typing import Final, Literal, assert_never
from uuid import UUID

import msgspec

from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import RESULT_BYTES_MAX
from coatcheck.domain.states import (
    Cancelled,
    Completed,
    Failed,
    Interrupted,
    Outcome,
    Parked,
    Postponed,
    Retryable,
    Unreachable,
)
from coatcheck.job import Chunk, LogLine, ProgressReport

LENGTH_BYTES: Final = 4
FRAME_BYTES_MAX: Final = RESULT_BYTES_MAX + 1024 * 1024
"""The largest result, with room for the envelope."""

OUT_OF_MEMORY_STATUS: Final = 88
"""The exit status of a process that has no memory left to report its outcome."""


class BadFrame(Exception):
    """The other side sent something that is not a message."""


class Start(msgspec.Struct, frozen=True, tag="start"):
    """The first message: what to run, for which job, within which limits."""

    module: str
    qualname: str
    payload: bytes
    job: UUID
    org: str
    endpoint: str
    lane: Lane
    attempt: int
    request_id: str | None
    memory_mb: int | None
    cpu_seconds: int | None
    traceparent: str | None = None


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Cancellation was requested."""


class Attached(msgspec.Struct, frozen=True, tag="attached"):
    """The attached file was read completely."""


class AttachedFile(msgspec.Struct, frozen=True, tag="attached_file"):
    """A file to keep, as a path within the job's folder."""

    name: str
    media_type: str
    path: str


class ExecutionEnded(msgspec.Struct, frozen=True, tag="ended"):
    """The last message: the attempt's outcome. ``trace`` is for the worker's own log."""

    end: Literal["completed", "failed", "retryable", "unreachable", "cancelled"]
    result: bytes = b""
    code: str = ""
    message: str = ""
    after_seconds: float | None = None
    trace: str | None = None


ToProcess = Start | Cancel | Attached
FromProcess = ProgressReport | LogLine | Chunk | AttachedFile | ExecutionEnded

_encoder: Final = msgspec.msgpack.Encoder()
_to_process: Final[msgspec.msgpack.Decoder[ToProcess]] = msgspec.msgpack.Decoder(ToProcess)
_from_process: Final[msgspec.msgpack.Decoder[FromProcess]] = msgspec.msgpack.Decoder(FromProcess)


def frame(message: ToProcess | FromProcess) -> bytes:
    body = _encoder.encode(message)
    return len(body).to_bytes(LENGTH_BYTES) + body


def body_length(header: bytes | bytearray) -> int:
    length = int.from_bytes(header)
    if length > FRAME_BYTES_MAX:
        raise BadFrame(f"a frame of {length} bytes; {FRAME_BYTES_MAX} are allowed")
    return length


def message_to_process(body: bytes) -> ToProcess:
    return _to_process.decode(body)


def message_from_process(body: bytes) -> FromProcess:
    """Raises BadFrame, also for reports out of bounds: a handler could write to the socket."""
    try:
        return _from_process.decode(body)
    except ValueError as error:
        raise BadFrame(f"not a message: {type(error).__name__}") from error


def ended(outcome: Outcome, trace: str | None) -> ExecutionEnded:
    match outcome:
        case Completed(result):
            return ExecutionEnded("completed", result=result)
        case Failed(code, message):
            return ExecutionEnded("failed", code=code, message=message, trace=trace)
        case Retryable(code, message, after):
            return ExecutionEnded(
                "retryable", code=code, message=message, after_seconds=after, trace=trace
            )
        case Unreachable(message, after):
            return ExecutionEnded("unreachable", message=message, after_seconds=after)
        case Cancelled():
            return ExecutionEnded("cancelled")
        case Interrupted() | Parked() | Postponed():
            raise ValueError("only a worker may report interrupted, parked or postponed")
        case _:
            assert_never(outcome)


def outcome(ending: ExecutionEnded) -> Outcome:
    match ending.end:
        case "completed":
            return Completed(ending.result)
        case "failed":
            return Failed(ending.code, ending.message)
        case "retryable":
            return Retryable(ending.code, ending.message, ending.after_seconds)
        case "unreachable":
            return Unreachable(ending.message, ending.after_seconds)
        case "cancelled":
            return Cancelled()
        case _:
            assert_never(ending.end)
