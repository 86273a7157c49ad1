"""The history of a run as seen from outside: append-only, one line of JSON for each event.

The load, the simulated world and the faults write the lines; all of them outlive the killed
processes. Times are those of the machine's monotonic clock, which all processes share, so lines
that handlers write in their own processes (``note_execution``) have the same order.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

EXECUTIONS = "executions.ndjson"
"""The file beside a history for the lines of handlers."""


class History:
    """Appends lines to ``path``, each with one write, so that readers see whole lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.executions = path.with_name(EXECUTIONS)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.counts: Counter[str] = Counter()
        """The number of lines so far, by kind."""
        self._began = time.monotonic()
        self.note("began", monotonic=self._began, wall=time.time())

    def note(self, kind: str, /, **fields: object) -> None:
        """Add a line: the seconds since the run began, its kind, and ``fields``."""
        self.counts[kind] += 1
        _append(self._file, {"t": round(self.now(), 6), "kind": kind, **fields})

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def close(self) -> None:
        os.close(self._file)


def note_execution(path: str, **fields: object) -> None:
    """For handlers: add a line to the executions, from any process."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        _append(file, {"monotonic": time.monotonic(), "kind": "executed", **fields})
    finally:
        os.close(file)


def read(path: Path) -> list[dict[str, Any]]:
    """Every whole line of a history, in the order in which they were written."""
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def read_executions(history: Path) -> list[dict[str, Any]]:
    """The lines of the handlers beside a history, with the history's ``t``."""
    path = history.with_name(EXECUTIONS)
    if not path.exists():
        return []
    (began, *_) = (row["monotonic"] for row in read(history) if row["kind"] == "began")
    return [{"t": round(row["monotonic"] - began, 6), **row} for row in read(path)]


def _append(file: int, row: dict[str, object]) -> None:
    line = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    # O_APPEND makes a write of this size whole on a local file system: lines never mix.
    if os.write(file, line) != len(line):
        raise OSError("a line of the history was only partly written: the disk is full")
