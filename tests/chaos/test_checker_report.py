"""The report of a run says what was found, and why a run proves nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chaos import report
from chaos.checker.finding import SHOWN_MAX, Finding, Verdict

HISTORY: list[dict[str, Any]] = [
    {"t": 0.0, "kind": "began", "wall": 0.0},
    {"t": 0.1, "kind": "stage", "name": "load"},
    {"t": 1.0, "kind": "fault", "name": "cut", "target": "worker-2", "number": 1, "phase": "begin"},
    {"t": 1.5, "kind": "fault", "name": "cut", "target": "worker-2", "number": 1, "phase": "end"},
    {"t": 2.0, "kind": "sample", "source": "database", "reachable": False},
    {"t": 3.0, "kind": "sample", "source": "database", "reachable": True}
    | {"queued": 3, "held": 2, "postponed": 1},
]


def _verdict(**given: Any) -> Verdict:
    counts = {"fault cut worker": 1, "jobs": 12, "webhooks sent": 3, "lost": 0}
    return Verdict(counts=counts, curves={"submitted": [1, 2], "ended": [0, 3]}, **given)


def test_a_run_that_passed_is_reported_with_its_counts(tmp_path: Path) -> None:
    path = report.write(tmp_path, _verdict(), HISTORY, seed=3, command="python -m chaos", minutes=2)

    text = path.read_text()
    assert text.startswith("# Chaos run: passed\n\nSeed 3, 2 minutes. `python -m chaos`")
    assert "| cut worker | 1 |" in text
    document = json.loads((tmp_path / report.JSON_NAME).read_text())
    assert (document["passed"], document["counts"]["jobs"]) == (True, 12)


def test_the_summary_names_every_finding_once_and_no_more_than_can_be_read() -> None:
    findings = [Finding("lost", "A", f"job {number}") for number in range(SHOWN_MAX + 5)]
    verdict = _verdict(findings=findings, invalid=["no pause ever struck"])

    text = report.summary(verdict, seed=3, minutes=2)
    assert "FAILED, 25 findings" in text
    assert "[A] lost: job 0" in text
    assert "[A] lost: 5 more" in text
    assert "invalid: no pause ever struck" in text
    assert not verdict.passed


def test_a_run_that_proves_nothing_has_not_passed() -> None:
    verdict = _verdict(invalid=["no cut ever struck"])
    assert not verdict.passed
    assert "INVALID" in report.summary(verdict, seed=1, minutes=1)


def test_the_timeline_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    text = report.write(tmp_path, _verdict(), HISTORY, seed=3, command="x", minutes=2).read_text()

    picture = (tmp_path / report.PICTURE_NAME).read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert [int.from_bytes(picture[at : at + 4]) for at in (16, 20)] == [1600, 900]
    assert report.PICTURE_NAME in text
