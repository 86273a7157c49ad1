"""Whether a run is valid: each requested fault had an effect, under load."""

from __future__ import annotations

from collections import Counter

from chaos.checker.evidence import Evidence
from chaos.checker.stale import refused_results

PAUSES = "pause"


def what_is_missing(evidence: Evidence) -> list[str]:
    """The reasons why a run proves nothing; empty for a valid run."""
    missing = []
    struck = fired(evidence)
    missing += [f"no {name} ever struck" for name in sorted(evidence.asked) if not struck[name]]
    if PAUSES in evidence.asked and not refused_results(evidence):
        missing.append("no result ever came too late: nothing shows that stale holders are refused")
    acknowledged = Counter(call.surface for call in evidence.calls if call.outcome == "ok")
    missing += [
        f"nothing was acknowledged by {surface}"
        for surface in evidence.surfaces
        if not acknowledged[surface]
    ]
    if not any(True for _ in evidence.rows("received")):
        missing.append("no webhook was received")
    return missing


def fired(evidence: Evidence) -> Counter[str]:
    """The number of faults with an effect, by kind."""
    return Counter(
        row["name"]
        for row in evidence.rows("fault")
        if row["phase"] == "end" and row.get("effect", 1)
    )
