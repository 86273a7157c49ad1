"""The messages between the analysis and its parser processes.

There is one stream socket to each parser. A frame is a length of four bytes and a MessagePack
message. A parser does its work in the order in which it arrives, and answers each item once.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

LENGTH_BYTES: Final = 4
FACTS_BYTES_MAX: Final = 64 * 1024 * 1024
"""The limit for one file's facts; those of the largest allowed file have a tenth of it."""

NotParsedReason = Literal["timeout", "memory", "crash", "error"]
"""Why a file has no facts: it took too long or too much memory, the parser's process died, or the
parser raised an exception."""


class Work(msgspec.Struct, frozen=True, array_like=True):
    """A file to parse, by its index in the archive's list of entries."""

    place: int


class ParsedFiles(msgspec.Struct, frozen=True, array_like=True, tag="parsed"):
    """The facts of the file, encoded, so that they can be collected without decoding them."""

    facts: msgspec.Raw


class NotParsed(msgspec.Struct, frozen=True, array_like=True, tag="not_parsed"):
    """The file has no facts. ``error`` is an exception's type, never its text: that may quote the
    file."""

    reason: NotParsedReason
    error: str = ""


class ParserRefused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """The file's bytes do not match the archive's directory."""

    reason: str
    message: str


Answer = ParsedFiles | NotParsed | ParserRefused

_encoder: Final = msgspec.msgpack.Encoder()
_work: Final[msgspec.msgpack.Decoder[Work]] = msgspec.msgpack.Decoder(Work)
_answer: Final[msgspec.msgpack.Decoder[Answer]] = msgspec.msgpack.Decoder(Answer)


def frame(message: Work | Answer) -> bytes:
    body = _encoder.encode(message)
    return len(body).to_bytes(LENGTH_BYTES) + body


def read_work(body: bytes) -> Work:
    return _work.decode(body)


def take_answer(unread: bytearray) -> Answer | None:
    """Remove and return the first answer in the buffer; None if it is not complete."""
    if len(unread) < LENGTH_BYTES:
        return None
    end = LENGTH_BYTES + int.from_bytes(unread[:LENGTH_BYTES])
    if len(unread) < end:
        return None
    body = bytes(unread[LENGTH_BYTES:end])
    del unread[:end]
    return _answer.decode(body)
