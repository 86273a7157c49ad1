"""Runs: groups of jobs that share a queue.

The queue key of a run's jobs (the column ``flow``) is the run's id in hex. Jobs of a run that are
limited together have a slash and their key after it.
"""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

from coatcheck.domain.ids import to_text

_RUN_QUEUE_KEY: Final = re.compile(r"([0-9a-f]{32})(/.*)?", re.DOTALL)


def run_queue_key(run: UUID, key: str = "") -> str:
    """The queue key of a run's jobs, or of those that share a key."""
    return f"{run.hex}/{key}" if key else run.hex


def run_label(queue_key: str) -> str | None:
    """What people call a run's queue: the run by its id, and the key; None for any other queue."""
    run = _RUN_QUEUE_KEY.fullmatch(queue_key)
    return None if run is None else f"run {to_text(UUID(run[1]))}{run[2] or ''}"
