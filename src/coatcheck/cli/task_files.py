"""Reads the FILE of ``coatcheck batch``: JSON lines or a JSON array; ``-`` is standard input."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from coatcheck.cli.console import err
from coatcheck.cli.errors import Misconfigured

STANDARD_INPUT: Final = "-"
ARRAY_BYTES_MAX: Final = 64 * 1024 * 1024
"""An array is read into memory at once; lines are streamed and may be any number."""

_LINES: Final = frozenset({".ndjson", ".jsonl"})
_TABLES: Final = frozenset({".csv", ".tsv", ".xls", ".xlsx"})
_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A file's content: ``lines`` to upload unchanged, or the ``tasks`` of an array."""

    lines: Path | None = None
    tasks: list[msgspec.Raw] | None = None


@contextmanager
def task_file(name: str) -> Iterator[TaskFile]:
    """Open a file of tasks. Raises Misconfigured for a format that is not supported."""
    suffix = Path(name).suffix.lower()
    if suffix in _TABLES:
        raise Misconfigured(
            f"{name}: tables are not supported\n"
            "Convert each row to a line of JSON (NDJSON), such as "
            '{"url": "https://example.org/"}.'
        )
    with ExitStack() as closing:
        path = closing.enter_context(_standard_input()) if name == STANDARD_INPUT else Path(name)
        shown = "standard input" if name == STANDARD_INPUT else name
        try:
            found = _parse(path, shown, suffix)
        except OSError as error:
            raise Misconfigured(f"{shown}: {error.strerror}") from error
        yield found


@contextmanager
def _standard_input() -> Iterator[Path]:
    """Standard input copied to a file, so that a broken upload can be retried."""
    if sys.stdin.isatty():
        err.print("Reading tasks, one per line, until Ctrl-D.", style="dim")
    with tempfile.NamedTemporaryFile(prefix="coatcheck-tasks-") as kept:
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.flush()
        yield Path(kept.name)


def _parse(path: Path, shown: str, suffix: str) -> TaskFile:
    with path.open("rb") as file:
        start = file.read(4096).lstrip()
        if start.startswith(_GZIP):
            raise Misconfigured(
                f"{shown} is compressed\nDecompress it first: gunzip -c FILE | "
                "coatcheck batch submit - ..."
            )
        if not start.startswith(b"[") or suffix in _LINES:
            return TaskFile(lines=path)
        file.seek(0)
        first = file.readline(ARRAY_BYTES_MAX + 1)
        if _is_json(first) and file.read(4096).strip():
            return TaskFile(lines=path)  # each line an array
        file.seek(0)
        content = file.read(ARRAY_BYTES_MAX + 1)
    if len(content) > ARRAY_BYTES_MAX:
        raise Misconfigured(
            f"{shown} is a JSON array of more than {ARRAY_BYTES_MAX // 1024**2} MiB\n"
            "Convert it to JSON lines, which have no limit: jq -c '.[]' FILE > tasks.ndjson"
        )
    try:
        return TaskFile(tasks=msgspec.json.decode(content, type=list[msgspec.Raw]))
    except msgspec.DecodeError as error:
        raise Misconfigured(
            f"{shown} is not a valid JSON array: {error}\n"
            "If it holds JSON lines, give the file a name that ends in .ndjson."
        ) from error


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True
