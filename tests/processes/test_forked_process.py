"""A forked process is what ``python -m`` would have started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked_process import OURS, ForkedProcess, can_fork, run_forked
from tests.waiting import LIMIT_SECONDS

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "PYTHONPATH": OURS[0],
    "COLUMNS": "91",
    "LC_ALL": "C.UTF-8",
}

SHOW = """
import json, os, sys
import beside
from coatcheck.cli.console import out
print(json.dumps({
    "name": __name__, "package": beside.NAME, "arguments": sys.argv[1:], "folder": os.getcwd(),
    "environment": dict(os.environ), "given": sys.stdin.read(), "columns": out.width,
    "terminal": sys.stdout.isatty(), "files": len(os.listdir("/proc/self/fd")) - 1,
}))
print("and an error", file=sys.stderr)
sys.exit(7)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("NAME = 'beside'\n")
    (tmp_path / "show.py").write_text(SHOW)
    return tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_it_has_what_a_new_interpreter_has(folder: Path) -> None:
    started = subprocess.run(
        [sys.executable, "-m", "show", "a", "b c"],
        cwd=folder,
        env=ENVIRONMENT,
        input="given",
        capture_output=True,
        text=True,
    )
    forked = run_forked("show", "a", "b c", cwd=folder, env=ENVIRONMENT, given="given")
    assert json.loads(forked.stdout) == json.loads(started.stdout)
    assert (forked.stderr, forked.returncode) == (started.stderr, started.returncode)


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        ("raise ValueError('told')", 1, "ValueError: told"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT, "Interrupt"),
        ("import atexit; atexit.register(print, 'the end', flush=True)", 0, "the end"),
        (
            "from coatcheck.crash import crash_point\n"
            "for passed in range(3): print(passed, flush=True); crash_point('run.before_handler')",
            137,
            "0\n1\n",
        ),
    ],
    ids=["by an exception", "by kill -9", "by Ctrl-C", "in good order", "at a crash point"],
)
def test_it_ends_as_an_interpreter_ends(
    tmp_path: Path, program: str, status: int, said: str
) -> None:
    (tmp_path / "ending.py").write_text(program)
    armed = ENVIRONMENT | {"COATCHECK_CRASH_AT": "run.before_handler:2"}
    ended = run_forked("ending", cwd=tmp_path, env=armed)
    assert ended.returncode == status, ended.stderr
    assert said in ended.stdout + ended.stderr


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text("import signal\nsignal.pause()\n")
    start = (
        "import os, sys; from pathlib import Path; from tests.forked_process import ForkedProcess\n"
        f"process = ForkedProcess('waiting', [], cwd={str(tmp_path)!r}, env=dict(os.environ),"
        " stdout=1, stderr=2)\n"
        "print(process.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", start],
        env=ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(OURS)},
        stdout=subprocess.PIPE,
        text=True,
    ) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline()
        # The process has the other end of the pipe, and closes it when it ends.
        assert starter.stdout.read() == ""
        assert starter.wait(LIMIT_SECONDS) == -signal.SIGKILL


def test_who_must_see_the_start_of_the_interpreter_is_not_forked(tmp_path: Path) -> None:
    for differing in ({"LD_PRELOAD": "/lib/x.so"}, {"PYTHONPATH": str(tmp_path)}):
        assert not can_fork(ENVIRONMENT | differing)
        with pytest.raises(AssertionError):
            ForkedProcess("show", [], cwd=tmp_path, env=ENVIRONMENT | differing, stdout=1, stderr=2)
