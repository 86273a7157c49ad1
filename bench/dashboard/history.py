"""Writes a history by SQL: running millions of jobs would take hours and leave the same rows.

The jobs end one after the other over the last 20 days, the newest now. Both histories have the same
number of waiting jobs, so that they differ only in history.
"""

import asyncpg

from bench.dashboard.amounts import Amounts
from bench.queueing import queueing
from coatcheck.core.queries import sql
from coatcheck.domain.limits import ROLL_UPS_KEPT_SECONDS

ORG = "default"
_STEP = 250_000

# Ids begin with the time they were made, in milliseconds, as the engine's do.
_ENDED_JOBS = """
INSERT INTO jobs (org_id, id, lane, state, failures_max, failures, endpoint, flow, owner, result,
                  error_code, error_message, request_id, created_at, run_at, updated_at,
                  dispatched_at, started_at, finished_at, expires_at)
SELECT $1, (lpad(to_hex((date_part('epoch', t.made) * 1000)::bigint), 12, '0')
            || substr(md5(n::text), 1, 20))::uuid,
       (ARRAY['urgent', 'standard', 'standard', 'bulk'])[1 + n % 4]::job_lane,
       s.state::job_state, 3,
       CASE s.state WHEN 'failed' THEN 3 ELSE 0 END,
       'shop.v1.post__order' || n % 20, '', 'user-' || n % 50,
       CASE s.state WHEN 'completed' THEN '{"order": 1, "total": 12.5}'::bytea END,
       CASE s.state WHEN 'failed' THEN (ARRAY['timeout', 'upstream_status', 'oom'])[1 + n % 3] END,
       CASE s.state WHEN 'failed' THEN 'It took longer than the 300 s that it may.' END,
       'request-' || n, t.made, t.made, t.made + interval '2 s', t.made, t.made,
       t.made + interval '2 s', now() + interval '7 days'
FROM generate_series($2::bigint, $3::bigint) AS n
CROSS JOIN LATERAL (
    SELECT now() - interval '20 days' * ($4::float8 - n) / $4 - interval '3 s' AS made
) AS t
CROSS JOIN LATERAL (
    SELECT CASE WHEN n % 20 = 0 THEN 'failed' WHEN n % 20 = 1 THEN 'cancelled' ELSE 'completed' END
               AS state
) AS s
"""

ENDED = f"""
WITH changed AS ({_ENDED_JOBS} RETURNING org_id, id, state, run_id, endpoint, flow, owner)
{sql("jobs/record_unsuccessful")}
"""
"""With the rows by which lists find those that were unsuccessful."""

_WAITING = """
INSERT INTO jobs (org_id, id, lane, state, failures_max, endpoint, flow, owner, payload)
SELECT $1, (lpad(to_hex((date_part('epoch', now()) * 1000)::bigint), 12, '0')
            || substr(md5(n::text), 1, 20))::uuid,
       (ARRAY['urgent', 'standard', 'bulk'])[1 + n % 3]::job_lane, 'queued', 3,
       'shop.v1.post__order' || n % 20, 'flow-' || n % 10, 'user-1', '{}'
FROM generate_series(1, $2::integer) AS n
"""

# Like those of a deployment that ran these jobs, as far back as they are kept.
_ROLL_UPS = """
INSERT INTO job_roll_ups
SELECT o.org, s.seconds,
       date_bin(s.seconds * interval '1 s', now(), timestamptz '2000-01-01 00:00:00Z')
           - n * s.seconds * interval '1 s',
       l.lane::job_lane, 100, 100, 95, 5, 0, 3, 0, ARRAY[1, 2, 30, 50, 17], ARRAY[0, 0, 10, 60, 30]
FROM (VALUES ($1), ('*')) AS o (org)
CROSS JOIN unnest($2::integer[], $3::integer[]) AS s (seconds, steps)
CROSS JOIN (VALUES ('urgent'), ('standard'), ('bulk')) AS l (lane)
CROSS JOIN LATERAL generate_series(0, s.steps) AS n
"""
_FAILURES = """
INSERT INTO failure_roll_ups
SELECT o.org, s.seconds,
       date_bin(s.seconds * interval '1 s', now(), timestamptz '2000-01-01 00:00:00Z')
           - n * s.seconds * interval '1 s',
       c.code, 5
FROM (VALUES ($1), ('*')) AS o (org)
CROSS JOIN unnest($2::integer[], $3::integer[]) AS s (seconds, steps)
CROSS JOIN (VALUES ('timeout'), ('upstream_status'), ('oom')) AS c (code)
CROSS JOIN LATERAL generate_series(0, s.steps) AS n
"""


async def write_history(address: str, jobs: int, amounts: Amounts) -> None:
    connection = await asyncpg.connect(address, command_timeout=None)
    try:
        ended = jobs - amounts.waiting
        for first in range(1, ended + 1, _STEP):
            last = min(first + _STEP - 1, ended)
            await connection.execute(ENDED, ORG, first, last, float(ended))
        await connection.execute(queueing(_WAITING), ORG, amounts.waiting)
        seconds = list(ROLL_UPS_KEPT_SECONDS)
        steps = [kept // step for step, kept in ROLL_UPS_KEPT_SECONDS.items()]
        await connection.execute(_ROLL_UPS, ORG, seconds, steps)
        await connection.execute(_FAILURES, ORG, seconds, steps)
        await connection.execute("VACUUM ANALYZE")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()
