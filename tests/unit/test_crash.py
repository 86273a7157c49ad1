"""What COATCHECK_CRASH_AT does to a process: nothing, its end, or a stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from coatcheck import crash

PASSES_TWICE = """
from coatcheck.crash import crash_point, is_armed
for number in (1, 2):
    crash_point("llm.claimed")
    print(f"passed {number}", flush=True)
crash_point("llm.answered")
print("armed" if is_armed("llm.claimed") else "free", flush=True)
"""


def passing(crash_at: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PASSES_TWICE],
        env=os.environ | {"COATCHECK_CRASH_AT": crash_at},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("crash_at", "said"),
    [("llm.claimed", []), ("llm.claimed:1", []), ("llm.claimed:2", ["passed 1"])],
)
def test_a_process_dies_at_the_passing_it_was_told(crash_at: str, said: list[str]) -> None:
    process = passing(crash_at)
    assert process.communicate()[0].splitlines() == said
    assert process.returncode == 137


def test_a_process_that_was_told_to_stop_stands_still_once_and_then_goes_on() -> None:
    process = passing("llm.claimed:2:stop")
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
    process.send_signal(signal.SIGCONT)
    assert process.communicate()[0].splitlines() == ["passed 1", "passed 2", "free"]
    assert process.returncode == 0


def test_a_process_that_was_told_nothing_passes() -> None:
    assert passing("").communicate()[0].splitlines() == ["passed 1", "passed 2", "free"]


@pytest.mark.parametrize("crash_at", ["no.such_point", "llm.claimed:1:explode"])
def test_what_names_no_point_or_no_fate_is_refused(
    crash_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COATCHECK_CRASH_AT", crash_at)
    with pytest.raises(ValueError, match="COATCHECK_CRASH_AT"):
        crash.read_armed()
