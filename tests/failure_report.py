"""What the report of a failing test says besides its traceback: the seed, and processes' logs.

A process's log goes to a file. The report of a failing test shows the end of each log that was
written to while the test ran, and names the folder where whole copies are kept. The tests' own
folders are removed too soon for that.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests import budget

TAIL_CHARACTERS: Final = 4_000
LOG_SUFFIXES: Final = frozenset({".log", ".out"})
FOLDERS_OF_TESTS: Final = ("tmp_path", "data_root")
"""Fixtures that are a folder in which a test's processes may log."""

_began_at: Final = pytest.StashKey[float]()
_logs: Final[list[Path]] = []


def show_on_failure(log: Path) -> None:
    """Have a log shown that is in no folder of a test's own: a process that several tests share."""
    _logs.append(log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "setup":
        item.stash[_began_at] = call.start
    if report.failed:
        report.sections.append(("seed", seed_of_the_run()))
        logs = sorted(set(written_since(item, item.stash.get(_began_at, call.start))))
        if logs:
            folder = kept_folder(item.nodeid)
            for number, log in enumerate(logs):
                kept = folder / f"{number}-{log.name}"
                shutil.copyfile(log, kept)
                tail = log.read_text(errors="replace")[-TAIL_CHARACTERS:]
                report.sections.append((f"log kept in {kept}", tail))
    return report


def seed_of_the_run() -> str:
    """How to draw the same values again; what Hypothesis drew it says itself, as a decorator."""
    return f"{budget.SEED_VARIABLE}={budget.seed() or 0} {budget.TIMES_VARIABLE}={budget.times()}"


def written_since(item: pytest.Item, began_at: float) -> Iterator[Path]:
    """The logs that have words of the time of a test."""
    arguments = getattr(item, "funcargs", {})
    folders = [arguments[name] for name in FOLDERS_OF_TESTS if name in arguments]
    in_folders = (
        path for folder in folders for path in folder.rglob("*") if path.suffix in LOG_SUFFIXES
    )
    for log in (*in_folders, *_logs):
        if log.is_file() and log.stat().st_size and log.stat().st_mtime >= began_at:
            yield log


def kept_folder(test: str) -> Path:
    name = re.sub(r"[^A-Za-z0-9]+", "-", test.rpartition("/")[2])[:100]
    folder = Path(tempfile.gettempdir()) / "coatcheck-test-logs" / f"{name}-{int(time.time())}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
