"""The passes of a sweep: one pytest run over the scenarios for each victim process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from chaos.progress import say
from tests.crash_points import STRUCK_VARIABLE, THOROUGH_VARIABLE, VARIABLE, Victim
from tests.e2e.faults.roles import UPKEEP_VARIABLE

_TELL_SECONDS: Final = 30.0
ROOT: Final = Path(__file__).resolve().parents[2]
_SCENARIOS: Final = (
    "test_crash_points",
    "test_input_crash_points",
    "test_webhook_crash_points",
    "test_batch_crash_points",
    "test_ingest_crash_points",
    "test_removal_crash_points",
    "test_llm_crash_points",
    "test_llm_stream_crash_points",
    "test_remote_crash_points",
    "test_stripe_crash_points",
)
_OF_UPLOADS: Final = ("canary/test_canary", "canary/test_lists")
"""Use servers and workers with all their loops, not maintenance alone."""
_HAVE_A_SERVER_OF_THEIR_OWN: Final = "not postgresql"


@dataclass(frozen=True)
class Pass:
    """One victim. ``title`` is its column; ``maintenance_in`` is the command whose loops die."""

    title: str
    victim: Victim
    maintenance_in: str = ""


PASSES: Final = {
    "process": Pass("process killed", Victim.PROCESS),
    "server": Pass("server killed in its maintenance", Victim.PROCESS, maintenance_in="server"),
    "worker": Pass("worker killed in its maintenance", Victim.PROCESS, maintenance_in="worker"),
    "postgresql": Pass("PostgreSQL killed", Victim.POSTGRESQL),
    "pause": Pass("held beyond its lease", Victim.PAUSE),
}


@dataclass(frozen=True)
class Struck:
    """The result of one crash point in one scenario."""

    point: str
    role: str
    test: str
    outcome: str
    detail: str = ""


def run(chosen: Pass, folder: Path, only: Sequence[str] = ()) -> list[Struck]:
    """Run the scenarios of one pass; a test's name must contain one of the words in ``only``."""
    name = chosen.title.replace(" ", "-")
    journal, report = folder / f"{name}.ndjson", folder / f"{name}.xml"
    files = _SCENARIOS if chosen.maintenance_in else (*_SCENARIOS, *_OF_UPLOADS)
    words = [_HAVE_A_SERVER_OF_THEIR_OWN, *([f"({' or '.join(only)})"] if only else [])]
    environment = os.environ | {
        VARIABLE: chosen.victim.value,
        UPKEEP_VARIABLE: chosen.maintenance_in,
        THOROUGH_VARIABLE: "1",
        STRUCK_VARIABLE: str(journal),
    }
    with (folder / f"{name}.log").open("w") as log:
        tests = subprocess.Popen(
            [
                *(sys.executable, "-m", "pytest", "-q", "-m", "crash", "-p", "no:cacheprovider"),
                *("-k", " and ".join(words), f"--junitxml={report}"),
                *(f"tests/e2e/{file}.py" for file in files),
            ],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
        )
        try:
            _print_progress(tests, chosen.title, journal)
        finally:
            tests.terminate()
            tests.wait()
    return _struck(journal, _outcomes(report))


def _print_progress(tests: subprocess.Popen[bytes], title: str, journal: Path) -> None:
    """Print the progress of a pass until it has ended."""
    while True:
        try:
            tests.wait(_TELL_SECONDS)
        except subprocess.TimeoutExpired:
            struck = len(journal.read_bytes().splitlines()) if journal.exists() else 0
            say(f"sweep: {title}: {struck} strikes so far")
        else:
            return


def _outcomes(report: Path) -> dict[str, tuple[str, str]]:
    """The outcome and the message of each test."""
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        test = f"{case.get('classname')}::{case.get('name')}"
        for trouble in case:
            if trouble.tag in ("failure", "error", "skipped"):
                word = "skipped" if trouble.tag == "skipped" else "failed"
                outcomes[test] = (word, trouble.get("message", ""))
                break
        else:
            outcomes.setdefault(test, ("passed", ""))
    return outcomes


def _struck(journal: Path, outcomes: dict[str, tuple[str, str]]) -> list[Struck]:
    lines = journal.read_text().splitlines() if journal.exists() else []
    struck = []
    for entry in map(json.loads, lines):
        outcome, detail = outcomes.get(entry["test"], ("failed", "the run ended before it did"))
        struck.append(Struck(entry["point"], entry["role"], entry["test"], outcome, detail))
    met = {each.test for each in struck}
    for test, (outcome, detail) in outcomes.items():
        if test not in met and outcome != "passed":
            struck.append(Struck(_point_of(test), "", test, outcome, detail))
    return struck


def _point_of(test: str) -> str:
    """The crash point of a test that recorded none, or never reached it."""
    return test.partition("[")[2].rstrip("]").partition("-")[0].partition(":")[0]


def as_json(struck: Struck) -> dict[str, Any]:
    return {
        "point": struck.point,
        "role": struck.role,
        "test": struck.test,
        "outcome": struck.outcome,
        "detail": struck.detail,
    }
