"""A. No process exits by itself, whatever happens to the others.

A process that cannot reach its database at its start may exit with an error: its supervisor
restarts it. After SIGTERM, a process exits cleanly and in time.
"""

from __future__ import annotations

from chaos.checker.evidence import Evidence, Row
from chaos.checker.finding import Finding

CHECK = "exits"
AT_WORK = ("worker ready", "serving on")
"""The log message of a process that is ready."""
DRAINED = "SIGTERM"
_SHOWN_CHARACTERS = 400


async def nobody_ends_by_itself(evidence: Evidence) -> list[Finding]:
    begun: dict[int, Row] = {}
    found = []
    for row in evidence.rows("process"):
        if row["phase"] == "begin":
            begun[row["pid"]] = row
        elif row["phase"] == "end" and (how := _badly(row)) is not None:
            log = begun.get(row["pid"], {}).get("log")
            said = _said(evidence, log)
            if any(words in said for words in AT_WORK):
                found.append(
                    Finding(
                        CHECK,
                        "A",
                        f"{row['name']} {how} with {row.get('code')} at {row['t']:.1f} s "
                        f"({log}): {said[-_SHOWN_CHARACTERS:]}",
                    )
                )
    return found + [
        Finding(CHECK, "A", f"{row['name']} did not end, long after it got {row['signal']}")
        for row in evidence.rows("stuck")
    ]


def _badly(ended: Row) -> str | None:
    """How a process ended, if wrongly. SIGKILL explains any end."""
    if not ended.get("expected", True):
        return "ended by itself"
    if ended.get("struck") == DRAINED and ended.get("code") != 0:
        return "was told to stop and ended"
    return None


def _said(evidence: Evidence, log: str | None) -> str:
    path = evidence.folder / "logs" / (log or "none")
    return path.read_text(errors="replace") if path.is_file() else ""
