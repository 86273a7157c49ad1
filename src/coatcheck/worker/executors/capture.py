"""Captures a process's output as lines of its job's log."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from coatcheck.domain.limits import LOG_LINE_CHARACTERS_MAX
from coatcheck.job import LogLevel, LogLine, storable_text

PRINTED_LINES_MAX: Final = 10_000
"""How many lines one stream of one attempt may add to a job's log. The rest is discarded."""

_READ_BYTES: Final = 64 * 1024
_LEVELS: Final[dict[str, LogLevel]] = {"stdout": "info", "stderr": "warning"}


async def capture(
    pipe: asyncio.StreamReader,
    stream: Literal["stdout", "stderr"],
    report: Callable[[LogLine], Awaitable[None]],
) -> None:
    """Report each line until the end of the pipe. A line too long for the log is split.

    Nothing is read while a report waits to be stored, so the process blocks once the pipe is full.
    """
    lines = _CapturedLines()
    kept = 0
    while True:
        data = await pipe.read(_READ_BYTES)
        for text in lines.feed(data):
            kept += 1
            if kept <= PRINTED_LINES_MAX:
                await report(LogLine(text, _LEVELS[stream], {"stream": stream}))
            elif kept == PRINTED_LINES_MAX + 1:
                notice = f"{stream} has more than {PRINTED_LINES_MAX} lines; the rest is dropped"
                await report(LogLine(notice, "warning", {"stream": stream}))
        if not data:
            return


class _CapturedLines:
    """Splits a stream of bytes into lines of text."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> list[str]:
        """The lines that ``data`` completes; at the end of the stream (no data), the rest."""
        text = self._rest + self._decoder.decode(data, final=not data)
        *complete, self._rest = text.split("\n")
        while len(self._rest) >= LOG_LINE_CHARACTERS_MAX:
            complete.append(self._rest[:LOG_LINE_CHARACTERS_MAX])
            self._rest = self._rest[LOG_LINE_CHARACTERS_MAX:]
        if not data and self._rest:
            complete.append(self._rest)
            self._rest = ""
        return [piece for line in complete for piece in _pieces(line.removesuffix("\r"))]


def _pieces(line: str) -> list[str]:
    text = storable_text(line)
    return [
        text[start : start + LOG_LINE_CHARACTERS_MAX]
        for start in range(0, len(text), LOG_LINE_CHARACTERS_MAX)
    ]
