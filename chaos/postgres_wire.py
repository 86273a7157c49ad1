"""A partial parser of PostgreSQL's protocol, enough to see commits.

The proxy must lose the answer to a COMMIT and not to a read, so it must know which statements
write. A client's Parse messages contain each prepared statement, its Bind messages say which of
them runs; the status in the server's ReadyForQuery says that no transaction is open any more. An
answer that ends idle, without an error, after a statement that writes is a commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_KEPT_BYTES: Final = 32 * 1024
_LABEL_CHARACTERS: Final = 80
_STARTUP: Final = 0

_PARSE, _BIND, _QUERY = b"PBQ"
_READY, _COMPLETE, _ERROR = b"ZCE"
_IDLE: Final = b"I"

_COMMENT: Final = re.compile(rb"--[^\n]*|/\*.*?\*/", re.DOTALL)
_LOCKS: Final = re.compile(rb"\bFOR\s+(NO\s+KEY\s+)?UPDATE\b")
_WRITES: Final = re.compile(rb"\b(INSERT\s+INTO|UPDATE|DELETE\s+FROM|MERGE\s+INTO|COPY)\b")


class Frames:
    """Splits a stream into messages, across arbitrary pieces, and keeps their beginnings.

    A client's first message has no type letter before its length.
    """

    def __init__(self, letters: bytes, *, begins_without_letter: bool) -> None:
        self._letters = frozenset(letters)
        self._header = bytearray()
        self._header_bytes = 4 if begins_without_letter else 5
        self._letter = _STARTUP
        self._left = -1  # of the current message; -1: none
        self._body = bytearray()

    def read(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        """The type and body of each relevant message that this piece completes."""
        at, end = 0, len(piece)
        while at < end:
            if self._left < 0:
                taken = piece[at : at + self._header_bytes - len(self._header)]
                self._header += taken
                at += len(taken)
                if len(self._header) < self._header_bytes:
                    return
                self._begin()
            passing = min(self._left, end - at)
            if passing and self._letter in self._letters and len(self._body) < _KEPT_BYTES:
                self._body += piece[at : at + passing]
            at += passing
            self._left -= passing
            if self._left == 0:
                self._left = -1
                if self._letter in self._letters:
                    yield self._letter, bytes(self._body)

    def _begin(self) -> None:
        self._letter = self._header[0] if self._header_bytes == 5 else _STARTUP
        self._left = int.from_bytes(self._header[-4:], "big") - 4
        self._header.clear()
        self._header_bytes = 5
        self._body.clear()


class PostgresTalk:
    """The traffic of one connection, seen from the proxy."""

    def __init__(self) -> None:
        self._asked = Frames(b"PBQ", begins_without_letter=True)
        self._answered = Frames(b"ZCE", begins_without_letter=False)
        self._writers: dict[bytes, str] = {}
        """The prepared statements that write, by name."""
        self._written: str | None = None
        """The first writing statement since the connection was idle."""
        self._failed = False

    def asked(self, piece: bytes) -> None:
        """Parse data from the client."""
        for letter, body in self._asked.read(piece):
            if letter == _PARSE:
                name, _, rest = body.partition(b"\0")
                self._prepared(name, rest.partition(b"\0")[0])
            elif letter == _BIND:
                statement = body.partition(b"\0")[2].partition(b"\0")[0]
                self._ran(self._writers.get(statement))
            elif letter == _QUERY:
                text = body.rstrip(b"\0")
                self._ran(_label(text) if _is_writing(text) else None)

    def answered(self, piece: bytes) -> str | None:
        """Parse data from the server. Returns the statement that is committed now, if any."""
        committed: str | None = None
        for letter, body in self._answered.read(piece):
            if letter == _ERROR or (letter == _COMPLETE and body.startswith(b"ROLLBACK")):
                self._failed = True
            elif letter == _READY and body == _IDLE:
                if not self._failed:
                    committed = committed or self._written
                self._written, self._failed = None, False
        return committed

    def _prepared(self, name: bytes, text: bytes) -> None:
        self._writers.pop(name, None)
        if _is_writing(text):
            self._writers[name] = _label(text)

    def _ran(self, writer: str | None) -> None:
        self._written = self._written or writer


def _is_writing(text: bytes) -> bool:
    return _WRITES.search(_LOCKS.sub(b"", _COMMENT.sub(b"", text))) is not None


def _label(text: bytes) -> str:
    """The beginning of a statement. It contains no values: those are sent separately."""
    words = b" ".join(_COMMENT.sub(b" ", text).split())
    return words.decode(errors="replace")[:_LABEL_CHARACTERS]
