"""Tasks of runs, their limits, and a clock that tests can move."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from coatcheck.core.queries.limits import set_run_limits
from coatcheck.domain.ids import new_id
from coatcheck.domain.job import ClaimedJob
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import ENDPOINT, ORG, recorded


async def put_run(
    connection: AsyncpgConnection,
    tasks: int,
    *,
    keys: Sequence[str] = (),
    run: UUID | None = None,
    org: str = ORG,
    concurrency: int | None = None,
    per_second: float | None = None,
    key_per_second: float | None = None,
) -> UUID:
    """A run of ``tasks`` queued tasks, or so many for each of its ``keys``, under these limits."""
    run = run or new_id()
    flows = [f"{run.hex}/{key}" for key in keys] or [run.hex]
    await connection.execute(
        recorded("""
        INSERT INTO jobs (org_id, id, lane, failures_max, endpoint, flow, payload)
        SELECT $1, gen_random_uuid(), 'standard', 3, $2, flow, '{}'
        FROM unnest($3::text[]) AS flow, generate_series(1, $4::integer) AS n
        """),
        org,
        ENDPOINT,
        flows,
        tasks,
    )
    await set_run_limits(
        connection,
        org,
        run,
        concurrency=concurrency,
        per_second=per_second,
        key_per_second=key_per_second,
    )
    return run


async def let_pass(connection: AsyncpgConnection, seconds: float) -> None:
    """Move the clock of all rates on: everything was noted so many seconds earlier."""
    await connection.execute(
        """
        UPDATE run_tokens
        SET in_step_at = in_step_at - $1 * interval '1 second',
            next_look_at = next_look_at - $1 * interval '1 second'
        """,
        seconds,
    )


def key_of(job: ClaimedJob) -> str:
    return job.queue_key.partition("/")[2]


def run_of(job: ClaimedJob) -> UUID:
    return UUID(hex=job.queue_key.partition("/")[0])
