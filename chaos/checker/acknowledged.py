"""The acknowledged jobs and batches: those that got a 2xx response."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from chaos.checker.evidence import Call, Evidence

CREATING: Final = frozenset({"submit", "create_batch", "retry"})
"""Operations that create a job or a batch."""
BATCHES: Final = "batches"


@dataclass(frozen=True)
class Promise:
    """An acknowledged job or batch, and the call that was answered with it."""

    job: str
    call: Call

    @property
    def is_batch(self) -> bool:
        return self.call.surface == BATCHES


def promises(evidence: Evidence, surfaces: Collection[str] = ()) -> list[Promise]:
    """Every acknowledged job once, with the first call that was answered with it."""
    found: dict[str, Promise] = {}
    for call in evidence.calls:
        if call.outcome != "ok" or call.operation not in CREATING or call.job is None:
            continue
        if not surfaces or call.surface in surfaces:
            found.setdefault(call.job, Promise(call.job, call))
    return list(found.values())


def jobs(evidence: Evidence) -> list[Promise]:
    return [promise for promise in promises(evidence) if not promise.is_batch]


def batches(evidence: Evidence) -> list[Promise]:
    return [promise for promise in promises(evidence) if promise.is_batch]
