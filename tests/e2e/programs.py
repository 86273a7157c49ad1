"""Runs Coatcheck's commands and programs written on it as their users do: as processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.forked_process import ForkedProcess
from tests.markdown import REPOSITORY
from tests.waiting import LIMIT_SECONDS, eventually

WORKER_IS_READY = "worker ready"


def environment(dsn: str, folder: Path) -> dict[str, str]:
    """What a process on this database is told; whatever it leaves behind goes to ``folder``."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("COATCHECK_")}
    return inherited | {
        "COATCHECK_DATABASE_URL": dsn,
        "COATCHECK_BLOB_URL": (folder / "blobs").as_uri(),
        "COATCHECK_TEMP_DIR": str(folder / "temp"),
        "COATCHECK_LOG_FORMAT": "json",
        "PYTHONPATH": str(REPOSITORY / "src"),
    }


@contextlib.contextmanager
def worker(targets: list[str], *, cwd: Path, env: dict[str, str], log: Path) -> Iterator[int]:
    """The pid of ``coatcheck worker`` for these services, which has to drain and exit in order."""
    with log.open("wb") as output:
        process = ForkedProcess(
            "coatcheck.cli",
            ("worker", *targets),
            cwd=cwd,
            env={"COATCHECK_GRAPHS_CONCURRENCY": "0"} | env,  # no part of it
            stdout=output,
            stderr=output,
        )
    try:
        eventually(
            lambda: process.poll() is not None or WORKER_IS_READY in log.read_text(),
            "the worker is ready",
        )
        assert process.poll() is None, log.read_text()
        yield process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_SECONDS) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def output_of(program: Path, *, cwd: Path, env: dict[str, str]) -> str:
    """What a program prints; it has to succeed."""
    ended = subprocess.run(
        [sys.executable, program],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
