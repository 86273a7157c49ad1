-- Record the usage of the jobs that this statement ended: included by every statement that ends jobs,
-- from its `changed`. A row for each group of jobs and not for each job: a statement ends few groups.
--
-- `changed` gives org_id, state, endpoint, flow, run_id, attempts, payload_bytes, result_bytes,
-- run_seconds. Tasks of a run are one group, and name it: the roll-up counts them for it.
-- The day is that of finished_at, which is now() as well.
INSERT INTO usage_deltas (
        org_id, day, completed, failed, cancelled, attempts, payload_bytes, result_bytes,
        run_seconds, endpoint, flow, run_id
    )
    SELECT c.org_id, (now() AT TIME ZONE 'UTC')::date,
           count(*) FILTER (WHERE c.state = 'completed'),
           count(*) FILTER (WHERE c.state = 'failed'),
           count(*) FILTER (WHERE c.state = 'cancelled'),
           sum(c.attempts), coalesce(sum(c.payload_bytes), 0), sum(c.result_bytes),
           sum(c.run_seconds::double precision), c.endpoint,
           CASE WHEN c.run_id IS NULL THEN c.flow ELSE '' END, c.run_id
    FROM changed AS c
    WHERE c.state IN ('completed', 'failed', 'cancelled')
    GROUP BY c.org_id, c.endpoint, c.run_id, CASE WHEN c.run_id IS NULL THEN c.flow ELSE '' END
