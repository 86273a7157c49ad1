"""A. Acknowledged is durable: whatever got a 2xx response is stored and has finished."""

from __future__ import annotations

from uuid import UUID

from chaos.checker import acknowledged
from chaos.checker.evidence import Evidence
from chaos.checker.finding import Finding
from chaos.checker.ids import uuids_of

CHECK = "lost"
_TERMINAL = ("completed", "failed", "cancelled")


async def lost(evidence: Evidence) -> list[Finding]:
    return [
        *await _jobs(evidence),
        *await _batches(evidence),
        *await _tasks(evidence),
        *_seen_by_the_load(evidence),
    ]


async def _jobs(evidence: Evidence) -> list[Finding]:
    promised = {each.job: each for each in acknowledged.jobs(evidence)}
    ids = uuids_of(promised)
    found = [
        _finding(f"{promised[job].call} was answered with {job!r}, which is no id")
        for job in promised.keys() - set(ids.values())
    ]
    rows = await evidence.sql.fetch(
        "SELECT id, state::text AS state FROM jobs WHERE id = ANY($1)", list(ids)
    )
    states: dict[UUID, str] = {row["id"]: row["state"] for row in rows}
    for uuid, job in ids.items():
        state = states.get(uuid)
        if state is None:
            found.append(_finding(f"job {job} is gone; {promised[job].call} was answered with it"))
        elif state not in _TERMINAL:
            found.append(_finding(f"job {job} has not ended: it is {state}"))
    return found


async def _batches(evidence: Evidence) -> list[Finding]:
    promised = {each.job: each for each in acknowledged.batches(evidence)}
    ids = uuids_of(promised)
    rows = await evidence.sql.fetch(
        """
        SELECT b.id, r.completed_at IS NOT NULL AS ended, r.number, r.total, r.tasks, r.succeeded,
               r.failed, r.cancelled, r.latched_at IS NOT NULL AS latched
        FROM batches AS b
        JOIN runs AS r ON r.org_id = b.org_id AND r.id = b.current_run
        WHERE b.id = ANY($1)
        """,
        list(ids),
    )
    found = [
        _finding(f"{promised[job].call} was answered with {job!r}, which is no id")
        for job in promised.keys() - set(ids.values())
    ]
    known = {row["id"]: row for row in rows}
    for uuid, job in ids.items():
        row = known.get(uuid)
        if row is None:
            found.append(
                _finding(f"batch {job} is gone; {promised[job].call} was answered with it")
            )
        elif not row["ended"]:
            found.append(
                _finding(
                    f"batch {job} has not ended: run {row['number']}, latched {row['latched']}, "
                    f"{row['tasks']} tasks of {row['total']}, {row['succeeded']} succeeded, "
                    f"{row['failed']} failed, {row['cancelled']} cancelled"
                )
            )
    return found


async def _tasks(evidence: Evidence) -> list[Finding]:
    """Every acknowledged task of a batch is a row of its first run."""
    wanted: dict[str, int] = {}
    unsure: set[str] = set()
    counted: set[tuple[str, str | None]] = set()
    for chain in evidence.chains:
        last = chain[-1]
        if last.operation not in ("create_batch", "add_tasks"):
            continue
        answered = [call for call in chain if call.outcome == "ok"]
        batch = next((call.job for call in answered), None) or last.invoked.get("job")
        if batch is None:
            continue
        if not answered:
            # Its outcome is unknown.
            if any(call.outcome == "unknown" for call in chain):
                unsure.add(batch)
            continue
        if last.key is not None and (batch, last.key) in counted:
            continue  # a concurrent call with the same key: the same tasks
        counted.add((batch, last.key))
        tasks = chain[0].invoked.get("tasks")
        if tasks is None:
            unsure.add(batch)
        else:
            wanted[batch] = wanted.get(batch, 0) + int(tasks)
    ids = uuids_of(wanted)
    rows = await evidence.sql.fetch(
        """
        SELECT r.group_id AS batch_id, r.tasks, r.bad_lines,
               r.cancel_requested_at IS NOT NULL AS cancelled, coalesce(j.there, 0) AS there
        FROM runs AS r
        LEFT JOIN (
            SELECT org_id, run_id, count(*) AS there FROM jobs
            WHERE run_id IS NOT NULL GROUP BY org_id, run_id
        ) AS j ON j.org_id = r.org_id AND j.run_id = r.id
        WHERE r.group_id = ANY($1) AND r.number = 1
        """,
        list(ids),
    )
    found = []
    for row in rows:
        batch = ids[row["batch_id"]]
        there = row["there"]
        # A cancelled list is not ingested further, as requested.
        too_few = there < wanted[batch] and not row["cancelled"]
        if too_few or (there > wanted[batch] and batch not in unsure):
            found.append(
                _finding(
                    f"batch {batch} was acknowledged with {wanted[batch]} tasks and has {there} "
                    f"({row['tasks']} counted, {row['bad_lines']} bad lines)"
                )
            )
    return found


def _seen_by_the_load(evidence: Evidence) -> list[Finding]:
    """Violations that the load saw, and waits that it gave up."""
    return [
        _finding(f"{row['unsettled']} callers were still waiting for an answer or an end")
        for row in evidence.rows("settled")
        if row["unsettled"]
    ] + [
        Finding(
            f"load/{row.get('check')}",
            str(row.get("invariant") or "A"),
            f"{row.get('surface')} {row.get('job')}: {row.get('detail')}",
        )
        for row in evidence.rows("violation")
    ]


def _finding(detail: str) -> Finding:
    return Finding(CHECK, "A", detail)
