"""Runs a command to its end, with a timeout for busy machines."""

from __future__ import annotations

import subprocess
from pathlib import Path

from chaos.environment.waiting import WAIT_SECONDS_MAX
from tests.e2e.conftest import COMMAND, environment


def coatcheck(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The output and the exit status."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS_MAX,
        check=False,
    )
