"""Runs a command to its end, with the patience that a busy machine needs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from chaos.environment.patience import PATIENCE_SECONDS
from tests.e2e.conftest import COMMAND, environment


def coatcheck(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """What it said, and how it ended."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
