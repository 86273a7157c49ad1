"""H. A run's counters equal a recount by state; it completes once, after it was closed; and exports
are complete."""

from __future__ import annotations

import hashlib

from chaos.checker.evidence import Evidence
from chaos.checker.finding import Finding
from chaos.checker.ids import spelt, uuid_of

CHECK = "batches"

_COUNTED = """
SELECT r.id, r.group_id AS batch_id, r.number, r.total, r.tasks, r.completed_at, r.closed_at,
       r.latched_at,
       r.succeeded + coalesce(d.completed, 0) AS succeeded,
       r.failed + coalesce(d.failed, 0) AS failed,
       r.cancelled + coalesce(d.cancelled, 0) AS cancelled,
       coalesce(j.tasks, 0) AS there, coalesce(j.completed, 0) AS is_succeeded,
       coalesce(j.failed, 0) AS is_failed, coalesce(j.cancelled, 0) AS is_cancelled,
       j.last_end, (SELECT count(*) FROM run_history AS h WHERE h.id = r.id) AS completions
FROM runs AS r
LEFT JOIN LATERAL (
    SELECT sum(completed) AS completed, sum(failed) AS failed, sum(cancelled) AS cancelled
    FROM usage_deltas AS d WHERE d.org_id = r.org_id AND d.run_id = r.id
) AS d ON true
LEFT JOIN (
    SELECT org_id, run_id, count(*) AS tasks,
           count(*) FILTER (WHERE state = 'completed') AS completed,
           count(*) FILTER (WHERE state = 'failed') AS failed,
           count(*) FILTER (WHERE state = 'cancelled') AS cancelled,
           max(finished_at) AS last_end
    FROM jobs WHERE run_id IS NOT NULL GROUP BY org_id, run_id
) AS j ON j.org_id = r.org_id AND j.run_id = r.id
"""


async def runs_are_counted(evidence: Evidence) -> list[Finding]:
    found = []
    for row in await evidence.sql.fetch(_COUNTED):
        run = f"run {row['number']} of batch {spelt(row['batch_id'])}"
        for state in ("succeeded", "failed", "cancelled"):
            told, there = row[state], row[f"is_{state}"]
            if told != there:
                found += [_finding(f"{run} counts {told} {state}, and has {there}")]
        if row["tasks"] != row["there"]:
            found.append(_finding(f"{run} counts {row['tasks']} tasks, and has {row['there']}"))
        if row["completed_at"] is None:
            if row["completions"]:
                found.append(_finding(f"{run} was completed, and is not any more"))
            continue
        if row["completions"] != 1:
            found.append(_finding(f"{run} was completed {row['completions']} times"))
        if row["total"] != row["there"]:
            found.append(_finding(f"{run} has {row['there']} tasks and a total of {row['total']}"))
        if row["closed_at"] is None or row["closed_at"] > row["completed_at"]:
            found.append(_finding(f"{run} completed before it was closed"))
        if row["latched_at"] is None or row["latched_at"] > row["completed_at"]:
            found.append(_finding(f"{run} completed before its total was known"))
        if row["last_end"] is not None and row["last_end"] > row["completed_at"]:
            found.append(_finding(f"{run} completed before its last task had ended"))
    return found


async def exports_are_whole(evidence: Evidence) -> list[Finding]:
    """The files of completed exports match their rows, and downloaded exports have a line for each
    task."""
    rows = await evidence.sql.fetch(
        """
        SELECT batch_id, blob_key, bytes, sha256 FROM batch_exports
        WHERE state = 'completed' AND (expires_at IS NULL OR expires_at > now())
        """
    )
    found = []
    for row in rows:
        export = f"the export of batch {spelt(row['batch_id'])}"
        path = evidence.folder / "blobs" / row["blob_key"]
        if not path.is_file():
            found.append(_finding(f"{export} is not there"))
            continue
        data = path.read_bytes()
        if len(data) != row["bytes"] or hashlib.sha256(data).digest() != row["sha256"]:
            found.append(
                _finding(f"{export} has {len(data)} bytes, and should have {row['bytes']}")
            )
    return found + await _lines(evidence)


async def _lines(evidence: Evidence) -> list[Finding]:
    found = []
    for row in evidence.rows("exported"):
        batch = uuid_of(row["job"])
        tasks = await evidence.sql.fetchval(
            "SELECT total FROM runs WHERE group_id = $1 AND number = $2",
            batch,
            row.get("run") or 1,
        )
        if tasks is not None and row.get("lines") is not None and row["lines"] != tasks:
            found.append(
                _finding(f"an export of batch {row['job']} had {row['lines']} lines of {tasks}")
            )
    return found


def _finding(detail: str) -> Finding:
    return Finding(CHECK, "H", detail)
