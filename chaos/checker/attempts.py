"""F. Attempts are bounded, and crashes, failures, interruptions and unreachable targets are counted
separately: each step adds to at most one counter, the right one."""

from __future__ import annotations

from chaos.checker.evidence import Evidence
from chaos.checker.finding import Finding
from chaos.checker.ids import spelt
from coatcheck.domain.limits import CRASHES_TOGETHER_MAX

CHECK = "attempts"

_HELD = "('dispatching', 'processing', 'finalizing', 'cancel_requested')"

_MISCOUNTED = f"""
SELECT id, before::text AS before, after::text AS after, failures, crashes, interruptions,
       unreachables
FROM job_history
WHERE before IS NOT NULL AND (
    least(failures, crashes, interruptions, unreachables) < 0
    OR NOT CASE
        -- Put back: by a drain or a lost claim, or because it lost its worker. Never a failure.
        WHEN before IN {_HELD} AND after = 'queued'
        THEN failures = 0 AND unreachables = 0 AND crashes + interruptions = 1
        -- To be tried again: it failed, its target was not there, or it lost its worker once more.
        WHEN before IN {_HELD} AND after = 'retrying'
        THEN interruptions = 0 AND failures + unreachables + crashes = 1
        -- For good: by its own failure, or by one crash too many.
        WHEN before IN {_HELD} AND after = 'failed'
        THEN interruptions = 0 AND unreachables = 0 AND failures + crashes = 1
        -- What would have run again was to be cancelled: whatever it was, it was one thing.
        WHEN before IN {_HELD} AND after = 'cancelled'
        THEN failures + crashes + interruptions + unreachables <= 1
        ELSE failures + crashes + interruptions + unreachables = 0
    END
)
"""

_BEYOND_BOUNDS = """
SELECT id, failures, failures_max, crashes FROM jobs
WHERE failures > failures_max + 1 OR crashes > $1
"""

_COUNTED_BESIDE_STEPS = """
SELECT j.id, j.failures, j.crashes, j.interruptions, j.unreachables, h.failures AS h_failures,
       h.crashes AS h_crashes, h.interruptions AS h_interruptions, h.unreachables AS h_unreachables
FROM jobs AS j
JOIN (
    SELECT id, sum(failures) AS failures, sum(crashes) AS crashes,
           sum(interruptions) AS interruptions, sum(unreachables) AS unreachables
    FROM job_history GROUP BY id
) AS h ON h.id = j.id
WHERE (j.failures, j.crashes, j.interruptions, j.unreachables)
      IS DISTINCT FROM (h.failures, h.crashes, h.interruptions, h.unreachables)
"""


async def attempts_are_counted_apart(evidence: Evidence) -> list[Finding]:
    miscounted = await evidence.sql.fetch(_MISCOUNTED)
    beyond = await evidence.sql.fetch(_BEYOND_BOUNDS, CRASHES_TOGETHER_MAX + 1)
    beside = await evidence.sql.fetch(_COUNTED_BESIDE_STEPS)
    return [
        _finding(
            f"job {spelt(row['id'])}, {row['before']} to {row['after']}, added "
            f"{row['failures']} failures, {row['crashes']} crashes, {row['interruptions']} "
            f"interruptions, {row['unreachables']} unreachables"
        )
        for row in miscounted
    ] + [
        _finding(
            f"job {spelt(row['id'])} has {row['failures']} failures of {row['failures_max']} + 1 "
            f"and {row['crashes']} crashes of {CRASHES_TOGETHER_MAX} + 1"
        )
        for row in beyond
    ] + [
        _finding(f"job {spelt(row['id'])} counts {dict(row)}, which its steps did not add")
        for row in beside
    ]  # fmt: skip


def _finding(detail: str) -> Finding:
    return Finding(CHECK, "F", detail)
