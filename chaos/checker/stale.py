"""C. A stale holder changes nothing. Workers log each refused result."""

from __future__ import annotations

from chaos.checker.evidence import Evidence

TOO_LATE = "a result came too late"
"""The worker's log message for a refused result (``worker/exchange_loop.py``)."""


def refused_results(evidence: Evidence) -> list[str]:
    """The jobs whose late results were refused, one entry for each refusal."""
    return [
        str(row.get("job_id") or row.get("job"))
        for _, row in evidence.log_rows(lambda line: TOO_LATE in line)
    ]
