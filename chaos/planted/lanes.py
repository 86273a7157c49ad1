"""Runs a lane on a tree, and reports the failures and whether their reason is the right one.

A bug is caught by a test that ran and FAILED, or by a finding of the chaos run's checker. A tree
that cannot be imported, a statement that PostgreSQL cannot parse, or an interrupted run catches
nothing: any mistake in a patch would cause it, and it says nothing about the invariant.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, assert_never

from chaos.planted.bugs import Lane
from chaos.planted.trees import Tree

TEST_SECONDS_MAX: Final = 300.0
CHAOS_SECONDS_MAX: Final = 900.0
"""The limit for two minutes of load, the settling and the checks."""
_STOP_SECONDS_MAX: Final = 60.0
_FAILURES_MAX: Final = 3
"""The maximum number of failed tests to report."""
_NO_REASON: Final = re.compile(
    r"\b(ImportError|ModuleNotFoundError|SyntaxError|IndentationError|NameError"
    r"|PostgresSyntaxError|Undefined(Column|Table|Function|Parameter)Error"
    r"|IndeterminateDatatypeError|AmbiguousColumnError|DatatypeMismatchError)\b"
)
"""Errors that show an invalid patch instead of a bug."""


@dataclass(frozen=True)
class Run:
    """The result of a lane."""

    seconds: float
    passed: int = 0
    caught_by: list[str] = field(default_factory=list)
    trouble: str | None = None
    """Why the result says nothing about the bug, if so."""


def run(lane: Lane, tree: Tree, folder: Path, seconds_max: float | None = None) -> Run:
    """Run ``lane`` on ``tree``; its output goes to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    match lane.name:
        case "test":
            found = _run_tests(lane.arguments, tree, folder, seconds_max or TEST_SECONDS_MAX)
        case "chaos":
            found = _run_chaos(lane.arguments, tree, folder, seconds_max or CHAOS_SECONDS_MAX)
        case _:
            assert_never(lane.name)
    passed, caught_by, trouble = found
    return Run(time.monotonic() - began, passed, caught_by, trouble)


Found = tuple[int, list[str], str | None]


def _run_tests(names: Sequence[str], tree: Tree, folder: Path, seconds_max: float) -> Found:
    results, output = folder / "results.xml", folder / "output.txt"
    ended = _end_of(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *(f"--maxfail={_FAILURES_MAX}", f"--junitxml={results}", *names),
        ],
        tree,
        output,
        seconds_max,
    )
    if ended is None:
        return 0, [], f"not over after {seconds_max:g} s"
    if not results.exists():
        return 0, [], f"pytest ended with {ended} and without a report"
    return read_results(results, output)


def read_results(results: Path, output: Path) -> Found:
    """The number of passed tests, the failed ones, and other problems, from pytest's output."""
    passed, failed, troubles = 0, list[str](), list[str]()
    for case in ElementTree.parse(results).iter("testcase"):
        name = case.attrib["name"]
        failures, errors = case.findall("failure"), case.findall("error")
        failed += [name] * bool(failures)
        troubles += [f"{name}: {error.attrib.get('message', '')[:200]}" for error in errors]
        passed += not (failures or errors or case.findall("skipped"))
    # The logs of processes are shown with the test that failed.
    nonsense = _NO_REASON.search(output.read_text(errors="replace"))
    if failed and nonsense:
        return passed, [], f"it failed with {nonsense[0]}"
    if failed:
        return passed, failed, None
    if troubles:
        return passed, [], "; ".join(troubles)
    return passed, [], None if passed else "no test ran"


def _run_chaos(arguments: Sequence[str], tree: Tree, folder: Path, seconds_max: float) -> Found:
    report, data = folder / "report", tree.folder.with_name("data")
    ended = _end_of(
        [
            *(sys.executable, "-m", "chaos", *arguments),
            *("--report", str(report), "--folder", str(data)),
        ],
        tree,
        folder / "output.txt",
        seconds_max,
    )
    shutil.rmtree(data, ignore_errors=True)
    if ended is None:
        return 0, [], f"not over after {seconds_max:g} s"
    try:
        told = json.loads((report / "report.json").read_text())
    except FileNotFoundError:
        return 0, [], f"the run ended with {ended} and without a report"
    findings = sorted({finding["check"] for finding in told["findings"]})
    if findings:
        return 0, findings, None
    invalid = "; ".join(told.get("invalid", []))
    return int(ended == 0), [], f"the run is not valid: {invalid}" if invalid else None


def _end_of(command: Sequence[str], tree: Tree, output: Path, seconds: float) -> int | None:
    """The exit status of a command, or None if it had to be killed, with its children."""
    with output.open("wb") as said:
        process = subprocess.Popen(
            command,
            cwd=tree.folder,
            env=tree.environment(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End it like Ctrl-C, so that it ends its children; kill it if it does not."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
