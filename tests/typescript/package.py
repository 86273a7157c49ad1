"""The TypeScript client as it was built, and node to run programs on it."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.markdown import REPOSITORY

PACKAGE = REPOSITORY / "clients" / "typescript"
DIST = PACKAGE / "dist"
BUILD = PACKAGE / "build"
LIMIT_SECONDS = 180.0
"""What only a broken program takes."""

_COUNTS = re.compile(r"^# (pass|fail|skipped|todo) (\d+)$", re.MULTILINE)
TSC = PACKAGE / "node_modules" / ".bin" / "tsc"


def assert_is_built() -> None:
    """`make typescript` builds the client; what it was built from must not be newer."""
    built = PACKAGE / "build" / ".built"
    assert built.exists(), "clients/typescript is not built: run `make typescript`"
    sources = [*PACKAGE.glob("*.json"), *PACKAGE.glob("src/**/*.ts"), *PACKAGE.glob("test/**/*.ts")]
    changed = [path.name for path in sources if path.stat().st_mtime > built.stat().st_mtime]
    assert not changed, f"{changed} changed since it was built: run `make typescript`"


async def node(*arguments: str | Path, env: Mapping[str, str], cwd: Path = PACKAGE) -> str:
    """What node prints, its complaints aside; it has to succeed."""
    process = await asyncio.create_subprocess_exec(
        "node",
        *map(str, arguments),
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    reading = asyncio.create_task(process.communicate())
    try:
        await asyncio.wait({reading}, timeout=LIMIT_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()  # and what it has printed so far is shown
        printed, complaints = await reading
    assert process.returncode == 0, (printed + complaints).decode()
    return printed.decode()


async def run_tests(files: Iterable[Path], env: Mapping[str, str]) -> None:
    """node's test runner on these files: every test in them has to pass, and there must be some."""
    printed = await node("--test", "--test-reporter=tap", *sorted(files), env=env)
    counted = {name: int(count) for name, count in _COUNTS.findall(printed)}
    assert counted["pass"] > 0, printed
    assert counted["fail"] == counted["skipped"] == counted["todo"] == 0, printed
