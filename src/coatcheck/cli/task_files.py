"""The FILE of ``coatcheck batch``: lines of JSON, or one JSON array; ``-`` is standard input."""

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
"""An array is read whole, unlike lines, of which there may be any number."""

_LINES: Final = frozenset({".ndjson", ".jsonl"})
_TABLES: Final = frozenset({".csv", ".tsv", ".xls", ".xlsx"})
_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class TaskFile:
    """What a file holds: ``lines`` to be sent as they are, or the ``tasks`` of an array."""

    lines: Path | None = None
    tasks: list[msgspec.Raw] | None = None


@contextmanager
def task_file(name: str) -> Iterator[TaskFile]:
    """A file to take tasks from. Raises Misconfigured for one that cannot be any."""
    suffix = Path(name).suffix.lower()
    if suffix in _TABLES:
        raise Misconfigured(
            f"{name}: tables are not supported\n"
            "Write each row as JSON on a line of its own (NDJSON), such as "
            '{"url": "https://example.org/"}.'
        )
    with ExitStack() as closing:
        path = closing.enter_context(_standard_input()) if name == STANDARD_INPUT else Path(name)
        shown = "standard input" if name == STANDARD_INPUT else name
        try:
            found = _sorted_out(path, shown, suffix)
        except OSError as error:
            raise Misconfigured(f"{shown}: {error.strerror}") from error
        yield found


@contextmanager
def _standard_input() -> Iterator[Path]:
    """What comes in, kept in a file: a connection that breaks may want all of it again."""
    if sys.stdin.isatty():
        err.print("reading tasks, a line each, until Ctrl-D", style="dim")
    with tempfile.NamedTemporaryFile(prefix="coatcheck-tasks-") as kept:
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.flush()
        yield Path(kept.name)


def _sorted_out(path: Path, shown: str, suffix: str) -> TaskFile:
    with path.open("rb") as file:
        start = file.read(4096).lstrip()
        if start.startswith(_GZIP):
            raise Misconfigured(
                f"{shown} is compressed\nUnpack it on its way: gunzip -c FILE | "
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
            "Write it as lines, which may be as many as you like: jq -c '.[]' FILE > tasks.ndjson"
        )
    try:
        return TaskFile(tasks=msgspec.json.decode(content, type=list[msgspec.Raw]))
    except msgspec.DecodeError as error:
        raise Misconfigured(
            f"{shown} begins like a JSON array and is none: {error}\n"
            "Lines of JSON that begin so belong in a file that ends in .ndjson."
        ) from error


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True
