"""C. A stale holder changes nothing; and such holders there were: each refusal is in a log."""

from __future__ import annotations

from chaos.checker.evidence import Evidence

TOO_LATE = "a result came too late"
"""What a worker logs of a result that was refused (``worker/exchange_loop.py``)."""


def refused_results(evidence: Evidence) -> list[str]:
    """The jobs whose late results were refused, one entry for each refusal."""
    return [
        str(row.get("job_id") or row.get("job"))
        for _, row in evidence.log_rows(lambda line: TOO_LATE in line)
    ]
