-- Take tasks of the run before into a new one. One statement: their payloads stay on the server.
--
-- Moves the run and its part on as advance.sql does, from what they were; if that cannot be done,
-- nothing is written. A task that is not there any more is passed over. Rows are written in the
-- order of their ids, in which they are claimed: as task_copy.py says.
--
-- $1 org   $2 run   $3 part   $4 the run's tasks before   $5 the part's offset before
-- $6 the offset after   $7 whether it is the last chunk
-- $8 ids of the tasks to take, in order   $9 ids for new tasks, as many   $10 the run's flow
-- $11 what tasks tell by webhook
WITH old AS MATERIALIZED (
    SELECT j.payload, j.custom_id, j.flow, row_number() OVER (ORDER BY t.number) AS number
    FROM unnest($8::uuid[]) WITH ORDINALITY AS t (id, number)
    JOIN jobs AS j ON j.org_id = $1 AND j.id = t.id
),
run AS (
    UPDATE batch_runs AS r
    SET tasks = r.tasks + taken.tasks, lines = r.lines + taken.tasks
    FROM (SELECT count(*)::integer AS tasks FROM old) AS taken
    WHERE r.org_id = $1 AND r.id = $2 AND r.tasks = $4::integer AND r.latched_at IS NULL
      AND r.cancel_requested_at IS NULL
    RETURNING r.org_id, r.id, taken.tasks
),
part AS (
    UPDATE batch_parts AS p
    SET source_offset = $6::bigint, lines = p.lines + r.tasks, tasks = p.tasks + r.tasks,
        updated_at = now(), state = CASE WHEN $7::boolean THEN 'done' ELSE 'pending' END
    FROM run AS r
    WHERE p.org_id = r.org_id AND p.run_id = r.id AND p.id = $3 AND p.state = 'pending'
      AND p.source_offset = $5::bigint
    RETURNING p.org_id, p.id, p.batch_id
),
written AS (
    INSERT INTO jobs (
        org_id, id, lane, endpoint, flow, failures_max, payload, owner, request_id, run_id,
        task_index, custom_id, webhook
    )
    SELECT p.org_id, ($9::uuid[])[o.number], b.lane, b.endpoint, $10::text || substr(o.flow, 33),
           b.failures_max, o.payload, b.owner, b.request_id, $2, $4 + o.number - 1, o.custom_id,
           $11::smallint
    FROM part AS p
    JOIN batches AS b ON b.org_id = p.org_id AND b.id = p.batch_id
    CROSS JOIN old AS o
    ORDER BY ($9::uuid[])[o.number]
)
SELECT r.tasks FROM part AS p CROSS JOIN run AS r
