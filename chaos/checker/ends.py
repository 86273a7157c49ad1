"""C and D. A job reaches one final state and stays in it; every transition is legal."""

from __future__ import annotations

from chaos.checker.evidence import Evidence
from chaos.checker.finding import Finding
from chaos.checker.ids import spelt
from coatcheck.domain.states import EDGES, INITIAL, TERMINAL

CHECK = "one end"


async def one_end(evidence: Evidence) -> list[Finding]:
    return [
        *await _ended_twice(evidence),
        *await _illegal_steps(evidence),
        *await _gaps(evidence),
        *await _other_states(evidence),
        *await _changed_ends(evidence),
    ]


async def _ended_twice(evidence: Evidence) -> list[Finding]:
    rows = await evidence.sql.fetch(
        f"""
        SELECT id, array_agg(after::text ORDER BY number) AS ends FROM job_history
        WHERE after IN ({_literals(TERMINAL)}) GROUP BY id HAVING count(*) > 1
        """
    )
    return [_finding(f"job {spelt(row['id'])} ended {row['ends']}") for row in rows]


async def _illegal_steps(evidence: Evidence) -> list[Finding]:
    edges = ", ".join(f"('{source}', '{target}')" for source, target in sorted(EDGES))
    rows = await evidence.sql.fetch(
        f"""
        SELECT id, before::text AS before, after::text AS after FROM job_history
        WHERE CASE
            WHEN before IS NULL THEN after NOT IN ({_literals(INITIAL)})
            ELSE (before, after) NOT IN ({edges})
        END
        """
    )
    return [
        _finding(f"job {spelt(row['id'])} went from {row['before']} to {row['after']}")
        for row in rows
    ]


async def _gaps(evidence: Evidence) -> list[Finding]:
    """Steps that begin in another state than the previous step ended in."""
    rows = await evidence.sql.fetch(
        """
        SELECT id, left_in, before::text AS before FROM (
            SELECT id, before, lag(after) OVER (PARTITION BY id ORDER BY number) AS left_in
            FROM job_history
        ) AS steps
        WHERE before IS DISTINCT FROM left_in
        """
    )
    return [
        _finding(f"job {spelt(row['id'])} was left {row['left_in']} and found {row['before']}")
        for row in rows
    ]


async def _other_states(evidence: Evidence) -> list[Finding]:
    """Jobs in another state than the end of their last step."""
    rows = await evidence.sql.fetch(
        """
        SELECT j.id, j.state::text AS state, last.after::text AS after
        FROM jobs AS j
        LEFT JOIN (
            SELECT DISTINCT ON (id) id, after FROM job_history ORDER BY id, number DESC
        ) AS last ON last.id = j.id
        WHERE last.after IS DISTINCT FROM j.state
        """
    )
    return [
        _finding(f"job {spelt(row['id'])} is {row['state']}, its last step led to {row['after']}")
        for row in rows
    ]


async def _changed_ends(evidence: Evidence) -> list[Finding]:
    """Jobs whose result, error or counts changed after their end."""
    rows = await evidence.sql.fetch("SELECT id, state::text AS state, changed FROM end_history")
    return [
        _finding(
            f"job {spelt(row['id'])} was {row['state']}, and then changed: "
            f"{', '.join(row['changed'])}"
        )
        for row in rows
    ]


def _literals(states: frozenset[object]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(map(str, states)))


def _finding(detail: str) -> Finding:
    return Finding(CHECK, "D", detail)
