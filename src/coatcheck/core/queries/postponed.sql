-- name: add
-- Write the rows of jobs that wait for a time, in the statement that makes them wait or moves their time:
-- from its `put_off`, which has the columns (core/schema/0001_jobs.sql). A job may still have an old row.
INSERT INTO postponed AS p (
        org_id, id, run_at, state, lane, task_index, run_id, endpoint, error_code
    )
    SELECT o.org_id, o.id, o.run_at, o.state, o.lane, o.task_index, o.run_id, o.endpoint, o.error_code
    FROM put_off AS o
    ON CONFLICT (org_id, id) DO UPDATE
    SET run_at = excluded.run_at, state = excluded.state, lane = excluded.lane,
        task_index = excluded.task_index, run_id = excluded.run_id, endpoint = excluded.endpoint,
        error_code = excluded.error_code

-- name: add_moved
-- Write the rows of the jobs that a statement has wait for a retry: common table expressions from its
-- `moved`, which gives run_at, lane and task_index as well.
put_off AS (
    SELECT m.org_id, m.id, m.run_at, m.state, m.lane, m.task_index, m.run_id, m.endpoint, m.error_code
    FROM moved AS m
    WHERE m.state = 'retrying'
),
put_off_now AS (
    /* include postponed/add */
)

-- name: job
-- The job that a row `p` of postponed has, if it still waits: included by readers. Looked up job by job: a
-- join may begin with all jobs, or with an organisation's history.
CROSS JOIN LATERAL (
    SELECT * FROM jobs AS j
    WHERE j.org_id = p.org_id AND j.id = p.id AND j.state IN ('staged', 'retrying')
    OFFSET 0
) AS j

-- name: leave
-- Delete the rows of jobs that do not wait for a time any more: a common table expression from `changed`,
-- which gives previous.
postponed_no_more AS (
    DELETE FROM postponed AS p USING changed AS c
    WHERE c.previous IN ('staged', 'retrying') AND p.org_id = c.org_id AND p.id = c.id
)
