"""Queries that find out why jobs are stalled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection
from coatcheck.domain.lanes import Lane, LanePolicy


async def stall_reasons(
    db: Connection, keys: Sequence[tuple[str, UUID]], lanes: Mapping[Lane, LanePolicy]
) -> dict[tuple[str, UUID], str]:
    """Why each of these (org, id) is stalled; jobs that are not, or do not exist, are left out."""
    rows = await sql.fetch(
        db,
        "explain/stall",
        orgs=[org for org, _ in keys],
        ids=[job_id for _, job_id in keys],
        lanes=[lane.value for lane in lanes],
        lane_seconds=[policy.ack_seconds for policy in lanes.values()],
    )
    return {(row["org_id"], row["id"]): row["reason"] for row in rows if row["reason"] is not None}
