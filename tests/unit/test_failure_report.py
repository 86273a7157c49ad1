"""The report of a failing test names the seed and keeps the logs of processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAILING = """
import random
from pathlib import Path

from hypothesis import given, strategies as st

from tests.failure_report import show_on_failure

shared = Path(__file__).with_name("shared.log")
show_on_failure(shared)


def test_that_fails(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker.log").write_text("what the worker said")
    shared.write_text("what the shared server said")
    assert False


def test_that_passes(tmp_path):
    (tmp_path / "quiet.log").write_text("what nobody needs to read")


@given(st.integers())
def test_that_draws(number):
    assert number < 1000
"""


def test_a_failing_test_names_its_seed_and_keeps_its_logs(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        'pytest_plugins = ["tests.failure_report"]\n'
        "from hypothesis import settings\n"
        'settings.register_profile("ours", print_blob=True)\nsettings.load_profile("ours")\n'
    )
    (tmp_path / "test_three.py").write_text(FAILING)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "FUZZ_SEED": "4711", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert "2 failed, 1 passed" in ran.stdout
    assert "FUZZ_SEED=4711" in ran.stdout
    assert "@reproduce_failure" in ran.stdout
    assert "what the worker said" in ran.stdout
    assert "what the shared server said" in ran.stdout
    assert "what nobody needs to read" not in ran.stdout
    kept = {path.read_text() for path in (tmp_path / "coatcheck-test-logs").rglob("*.log")}
    assert kept == {"what the worker said", "what the shared server said"}
