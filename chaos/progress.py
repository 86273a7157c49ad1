"""A progress line on the terminal every few seconds: time, faults and finished work."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from chaos.faults import Striker

EVERY_SECONDS: Final = 5.0
_TAIL_BYTES: Final = 256 * 1024


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


async def print_progress(history: Path, striker: Striker, seconds: float) -> None:
    """Print the progress of a run of ``seconds`` until cancelled."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        sample = _newest_sample(history)
        struck = ", ".join(
            f"{kind} {count}" for kind, count in sorted(striker.struck.items()) if count
        )
        say(
            f"{loop.time() - began:5.0f} of {seconds:.0f} s"
            f"  submitted {sample.get('submitted', 0)}, ended {sample.get('ended', 0)},"
            f" waiting {sample.get('waiting', 0)}  |  {struck or 'no fault yet'}"
        )


def _newest_sample(history: Path) -> Mapping[str, Any]:
    """The last sample of the load."""
    with history.open("rb") as file:
        file.seek(max(0, history.stat().st_size - _TAIL_BYTES))
        lines = file.read().rpartition(b"\n")[0].splitlines()
    for line in reversed(lines):
        if b'"kind":"sample"' in line and b'"submitted"' in line:
            found: Mapping[str, Any] = json.loads(line)
            return found
    return {}
