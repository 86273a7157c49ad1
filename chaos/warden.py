"""Kills leftover processes when a run has ended: ``python -m chaos.warden FOLDER TOKEN``.

It waits for the end of its stdin, whose other end the run holds: the kernel closes it however the
run ends, even by kill -9. Then it kills the remaining processes of the run: those with its token in
their environment, and PostgreSQL, which has a clean environment and is found by its folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import psutil

TOKEN_VARIABLE: Final = "CHAOS_RUN"


@contextlib.asynccontextmanager
async def watched(folder: Path, token: str) -> AsyncIterator[None]:
    """Start a warden for this process. A context manager."""
    warden = subprocess.Popen(
        [sys.executable, "-m", "chaos.warden", str(folder), token],
        cwd=Path(__file__).resolve().parents[1],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C in the terminal must not reach it
    )
    try:
        yield
    finally:
        assert warden.stdin is not None
        warden.stdin.close()
        await asyncio.to_thread(warden.wait)


def left_of(folder: Path, token: str) -> list[psutil.Process]:
    """The running processes of a run."""
    return [each for each in psutil.process_iter() if _belongs(each, folder, token)]


def _belongs(process: psutil.Process, folder: Path, token: str) -> bool:
    try:
        command = process.cmdline()
        if command and Path(command[0]).name == "postgres":
            return any(Path(word).is_relative_to(folder) for word in command[1:])
        return process.environ().get(TOKEN_VARIABLE) == token
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def main() -> None:
    folder, token = Path(sys.argv[1]).resolve(), sys.argv[2]
    while sys.stdin.buffer.read(1):
        continue
    for process in left_of(folder, token):
        with contextlib.suppress(psutil.NoSuchProcess):
            family = [process, *process.children(recursive=True)]
            for each in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()


if __name__ == "__main__":
    main()
