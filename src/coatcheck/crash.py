"""Named crash points, where a test can kill or stop the process.

``COATCHECK_CRASH_AT=name:nth`` ends the process, as ``kill -9`` would, when ``crash_point(name)``
is passed for the nth time. ``COATCHECK_CRASH_AT=name:nth:stop`` stops it there once, as
``kill -STOP`` would. The test can then do what should happen at exactly that moment (kill
PostgreSQL, let a lease expire) before ``kill -CONT`` resumes the process. When off, a crash point
costs one read of a module global.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, replace
from typing import Final

CRASH_POINTS: Final = frozenset(
    {
        "submit.before_insert",
        "submit.inserted_not_committed",
        "submit.committed_not_answered",
        "submit.uploading",
        "submit.blob_stored",
        "submit.loser_before_delete",
        "archive.downloaded",
        "claim.before_statement",
        "claim.updated_not_committed",
        "claim.limited_not_committed",
        "claim.committed_not_dispatched",
        "run.before_handler",
        "run.handler_returned",
        "finish.before_statement",
        "finish.updated_not_committed",
        "finish.committed_not_notified",
        "settle.committed_not_notified",
        "mark_started.committed",
        "reports.committed",
        "artifact.blob_stored",
        "heartbeat.sent",
        "drain.before_release",
        "drain.released_not_deregistered",
        "cancel.committed_not_notified",
        "stage.updated_not_committed",
        "rescue.updated_not_committed",
        "expire.updated_not_committed",
        "prune.updated_not_committed",
        "prune.rows_deleted_blobs_not",
        "batch.inserted_not_committed",
        "batch.cancel_not_committed",
        "batch.completed_not_committed",
        "batch.completed_not_notified",
        "rerun.inserted_not_committed",
        "ingest.chunk_not_committed",
        "ingest.chunk_committed",
        "ingest.before_latch",
        "ingest.latched",
        "rerun.chunk_not_committed",
        "rerun.chunk_committed",
        "reconcile.before_resubmit",
        "stripe.collected",
        "stripe.sent_not_marked",
        "input.inserted_not_committed",
        "input.blob_deleted_not_marked",
        "input.marked",
        "export.mid_file",
        "export.uploaded_not_marked",
        "batch.remove_chunk_deleted",
        "webhook.before_post",
        "webhook.after_2xx",
        "llm.claimed",
        "llm.chunk_stored",
        "llm.answered",
        "llm.stream_sent",
        "remote.begun",
        "remote.spawned",
        "remote.parked_not_committed",
        "remote.parked",
        "remote.finalizing_not_committed",
        "remote.finalizing",
        "remote.kept",
        "remote.completed_not_committed",
        "remote.completed",
        "remote.cancelled",
        "remote.settled",
    }
)
"""All crash points. The sweep in tests/e2e kills at each of them."""

_EXIT_CODE: Final = 137
_STOP: Final = "stop"


@dataclass(frozen=True, slots=True)
class Armed:
    """The crash point to trigger, and how many passes before it does."""

    name: str
    passes: int
    stops: bool


def read_armed() -> Armed | None:
    value = os.environ.get("COATCHECK_CRASH_AT")
    if not value:
        return None
    name, _, rest = value.partition(":")
    nth, _, what = rest.partition(":")
    if name not in CRASH_POINTS:
        raise ValueError(f"COATCHECK_CRASH_AT names an unknown crash point: {name!r}")
    if what not in ("", _STOP):
        raise ValueError(f"COATCHECK_CRASH_AT: the only action is 'stop', not {what!r}")
    return Armed(name, int(nth or "1"), stops=what == _STOP)


_armed: Armed | None = read_armed()


def crash_point(name: str) -> None:
    """Die or stop here if COATCHECK_CRASH_AT says so."""
    global _armed
    if _armed is None or _armed.name != name:
        return
    if _armed.passes > 1:
        _armed = replace(_armed, passes=_armed.passes - 1)
        return
    if not _armed.stops:
        os._exit(_EXIT_CODE)
    _armed = None
    os.kill(os.getpid(), signal.SIGSTOP)


def is_armed(name: str) -> bool:
    """Whether this process will die or stop at ``name``."""
    return _armed is not None and _armed.name == name
