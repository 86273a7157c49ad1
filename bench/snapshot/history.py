"""Writes a history by SQL: running millions of jobs would take hours and leave the same rows."""

import asyncpg

from coatcheck.core.queries import sql

_STEP = 250_000

# The jobs ended one after the other over the last ten days, the newest now. Ids begin with the time
# they were made, in milliseconds, as the engine's do.
_ENDED = f"""
WITH changed AS (
    INSERT INTO jobs (org_id, id, lane, state, failures_max, endpoint, flow, result, created_at,
                      run_at, updated_at, dispatched_at, started_at, finished_at, expires_at)
    SELECT 'org-' || n % $1, (lpad(to_hex((date_part('epoch', t.made) * 1000)::bigint), 12, '0')
                              || substr(md5(n::text), 1, 20))::uuid,
           'standard', 'completed', 3, $2, '', '{{"n":1}}', t.made, t.made, t.made, t.made, t.made,
           t.made, now() + interval '7 days' + n / 100 * interval '1 ms'
    FROM generate_series($3::integer, $4::integer) AS n
    CROSS JOIN LATERAL (
        SELECT now() - interval '10 days' * ($5::float8 - n) / $5 - interval '3 s' AS made
    ) AS t
    RETURNING org_id, id, expires_at
)
{sql("jobs/record_expiries")}
"""


async def write_history(address: str, jobs: int, endpoint: str, organisations: int) -> None:
    connection = await asyncpg.connect(address, command_timeout=None)
    try:
        for first in range(1, jobs + 1, _STEP):
            last = min(first + _STEP - 1, jobs)
            await connection.execute(_ENDED, organisations, endpoint, first, last, float(jobs))
        await connection.execute("VACUUM ANALYZE")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()
