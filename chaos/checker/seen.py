"""D. A job that a reader saw as finished stays finished, with the same result."""

from __future__ import annotations

from chaos.checker.evidence import Evidence, Row
from chaos.checker.finding import Finding
from chaos.checker.ids import uuids_of

CHECK = "seen ends stay"


async def ends_stay_as_seen(evidence: Evidence) -> list[Finding]:
    ends: dict[tuple[str, str], Row] = {}
    found = []
    for row in evidence.rows("seen"):
        # A rerun batch continues after its end.
        if row.get("surface") == "batches":
            continue
        job = (row["surface"], row["job"])
        first = ends.get(job)
        if first is None:
            if row["terminal"]:
                ends[job] = row
        elif not row["terminal"]:
            if row.get("asked", row["t"]) <= first["t"]:
                continue  # a late answer to an earlier request
            found.append(
                _finding(
                    f"{job} was {first['state']} at {first['t']:.2f} s and {row['state']} later"
                )
            )
        elif row["state"] != first["state"] or _differ(row, first):
            found.append(_finding(f"{job} ended as {_what(first)}, and later as {_what(row)}"))
        elif first.get("result_digest") is None:
            ends[job] = row  # later results are compared with the first one
    return found + await _not_so_in_the_database(evidence, ends)


async def _not_so_in_the_database(
    evidence: Evidence, ends: dict[tuple[str, str], Row]
) -> list[Finding]:
    ids = uuids_of(job for _, job in ends)
    rows = await evidence.sql.fetch(
        """
        SELECT id, state::text AS state FROM jobs
        WHERE id = ANY($1) AND state NOT IN ('completed', 'failed', 'cancelled')
        """,
        list(ids),
    )
    return [_finding(f"{ids[row['id']]} was seen to end, and is {row['state']}") for row in rows]


def _differ(row: Row, first: Row) -> bool:
    """Whether both have a result, and the results differ: an event may have only the end."""
    digests = {each.get("result_digest") for each in (row, first)} - {None}
    return len(digests) > 1


def _what(row: Row) -> str:
    return f"{row['state']} ({row.get('result_digest')})"


def _finding(detail: str) -> Finding:
    return Finding(CHECK, "D", detail)
