"""Batches put straight into the tables, with tasks in whatever states a test begins with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from coatcheck.db.connection import Connection
from coatcheck.domain.ids import new_id, run_queue_key
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from coatcheck.products.batches.model import BatchView, task_id
from coatcheck.products.batches.repository import read
from tests.db.edge_guard import AsyncpgConnection, unguarded
from tests.db.rows import ENDPOINT, HOLDER_BOOT, ORG, recorded, write_claims

_ROWS_AT_A_TIME = 20_000


@dataclass(frozen=True)
class LongRun:
    """A batch of one run, as it was put in."""

    org: str
    batch: UUID
    run: UUID
    part: UUID

    def task(self, index: int) -> UUID:
        return UUID(bytes=task_id(self.run, index))

    async def view(self, line: Connection) -> BatchView:
        return await read(line, self.org, self.batch)


async def put_long_run(
    connection: AsyncpgConnection,
    states: Sequence[State],
    *,
    org: str = ORG,
    keys: Sequence[str] = (),
    lane: Lane = Lane.STANDARD,
    endpoint: str = ENDPOINT,
    result: bytes = b'{"ok":true}',
    latched: bool = True,
    part_state: str = "done",
) -> LongRun:
    """A batch whose tasks are in these states, in this order; completed if all have ended.

    With ``keys`` its tasks have a flow for each key, by turns.
    """
    made = LongRun(org, new_id(), new_id(), new_id())
    counted = Counter(states)
    ended = [counted[state] for state in (State.COMPLETED, State.FAILED, State.CANCELLED)]
    completed = latched and sum(ended) == len(states)
    now = datetime.now(UTC)
    await connection.execute(
        """
        INSERT INTO batches (org_id, id, owner, service, service_endpoint, endpoint, lane,
                             failures_max, is_open, keep_seconds, current_run, completed_at)
        VALUES ($1, $2, 'user:ann', 'demo', '/work', $3, $4::text::job_lane, 3, $5, 3600, $6, $7)
        """,
        org,
        made.batch,
        endpoint,
        lane.value,
        not latched,
        made.run,
        now if completed else None,
    )
    await connection.execute(
        """
        INSERT INTO runs (org_id, id, group_id, number, tasks, total, succeeded, failed, cancelled,
                          closed_at, latched_at, completed_at, lane, endpoint, service,
                          service_endpoint)
        VALUES ($1, $2, $3, 1, $4, $5, $6, $7, $8, $9, $9, $10, $11::text::job_lane, $12, 'demo',
                '/work')
        """,
        org,
        made.run,
        made.batch,
        len(states),
        len(states) if latched else None,
        *ended,
        now if latched else None,
        now if completed else None,
        lane.value,
        endpoint,
    )
    await connection.execute(
        """
        INSERT INTO batch_parts (org_id, id, batch_id, run_id, position, source, state, tasks)
        VALUES ($1, $2, $3, $4, 1, 'inline', $5, $6)
        """,
        org,
        made.part,
        made.batch,
        made.run,
        part_state,
        len(states),
    )
    flows = [run_queue_key(made.run, key) for key in keys] or [run_queue_key(made.run)]
    async with unguarded(connection):
        for start in range(0, len(states), _ROWS_AT_A_TIME):
            chunk = range(start, min(start + _ROWS_AT_A_TIME, len(states)))
            await connection.execute(
                recorded(_PUT),
                org,
                made.run,
                lane.value,
                endpoint,
                result,
                HOLDER_BOOT << 40 | 1,
                now - timedelta(hours=1),
                [made.task(index) for index in chunk],
                list(chunk),
                [states[index].value for index in chunk],
                [flows[index % len(flows)] for index in chunk],
            )
    await write_claims(connection, org, [made.task(index) for index in range(len(states))])
    return made


_PUT = """
    INSERT INTO jobs (org_id, id, lane, failures_max, endpoint, flow, run_id, task_index, custom_id,
                      payload, state, run_at, lease, dispatched_at, run_deadline, finished_at,
                      expires_at, result, error_code, error_message, failures)
    SELECT $1, t.id, $3::text::job_lane, 3, $4, t.flow, $2, t.number, 'task ' || t.number,
           convert_to('{"n":' || t.number || '}', 'UTF8'), t.state::job_state,
           CASE WHEN t.state IN ('staged', 'retrying') THEN now() + interval '1 hour' ELSE $7 END,
           CASE WHEN t.state IN ('dispatching', 'processing') THEN $6::bigint END,
           CASE WHEN t.state IN ('dispatching', 'processing') THEN now() END,
           CASE WHEN t.state IN ('dispatching', 'processing') THEN now() + interval '1 hour' END,
           CASE WHEN t.state IN ('completed', 'failed', 'cancelled') THEN now() END,
           CASE
               WHEN t.state IN ('completed', 'failed', 'cancelled') THEN timestamptz 'infinity'
           END,
           CASE WHEN t.state = 'completed' THEN $5::bytea END,
           CASE t.state WHEN 'failed' THEN 'broke' WHEN 'cancelled' THEN 'cancelled' END,
           CASE t.state WHEN 'failed' THEN 'it broke' WHEN 'cancelled' THEN 'it was cancelled' END,
           CASE WHEN t.state = 'failed' THEN 4 ELSE 0 END
    FROM unnest($8::uuid[], $9::integer[], $10::text[], $11::text[]) AS t (id, number, state, flow)
"""


async def rows_left(connection: AsyncpgConnection, made: LongRun) -> dict[str, Any]:
    """How many rows of each table still tell of a batch; without those that have none."""
    counts = {
        "jobs": await connection.fetchval("SELECT count(*) FROM jobs WHERE run_id = $1", made.run),
        "job_events": await connection.fetchval(
            "SELECT count(*) FROM job_events WHERE job_id = ANY ($1)",
            [made.task(index) for index in range(100)],
        ),
        "artifacts": await connection.fetchval("SELECT count(*) FROM artifacts"),
        "batch_bad_lines": await connection.fetchval(
            "SELECT count(*) FROM batch_bad_lines WHERE part_id = $1", made.part
        ),
        "run_limits": await connection.fetchval(
            "SELECT count(*) FROM run_limits WHERE run = $1", made.run.hex
        ),
        "uploads": await connection.fetchval(
            "SELECT count(*) FROM uploads WHERE used_by = $1", made.batch
        ),
        "batches": await connection.fetchval(
            "SELECT count(*) FROM batches WHERE id = $1", made.batch
        ),
    }
    counts["runs"] = await connection.fetchval(
        "SELECT count(*) FROM runs WHERE group_id = $1", made.batch
    )
    counts["ended_tasks"] = await connection.fetchval(
        "SELECT count(*) FROM ended_tasks WHERE run_id = $1", made.run
    )
    for table in ("batch_parts", "batch_exports", "batch_positions"):
        counts[table] = await connection.fetchval(
            f"SELECT count(*) FROM {table} WHERE batch_id = $1", made.batch
        )
    return {table: count for table, count in counts.items() if count}
