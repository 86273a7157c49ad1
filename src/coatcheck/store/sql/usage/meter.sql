-- What the jobs that this statement ended have used: included by every statement that ends jobs,
-- from its `changed`. A row for each group of them and not for each job: a batch is mostly of few.
--
-- `changed` gives org_id, state, endpoint, flow, attempts, payload_bytes, result_bytes, run_seconds.
-- The day is that of finished_at, which is now() as well.
INSERT INTO usage_deltas (
        org_id, day, completed, failed, cancelled, attempts, payload_bytes, result_bytes,
        run_seconds, endpoint, flow
    )
    SELECT c.org_id, (now() AT TIME ZONE 'UTC')::date,
           count(*) FILTER (WHERE c.state = 'completed'),
           count(*) FILTER (WHERE c.state = 'failed'),
           count(*) FILTER (WHERE c.state = 'cancelled'),
           sum(c.attempts), coalesce(sum(c.payload_bytes), 0), sum(c.result_bytes),
           sum(c.run_seconds::double precision), c.endpoint, c.flow
    FROM changed AS c
    WHERE c.state IN ('completed', 'failed', 'cancelled')
    GROUP BY c.org_id, c.endpoint, c.flow
