-- Copy tasks of earlier runs into a new one. One statement, so that their payloads stay on the server.
--
-- Advances the run and its part as advance.sql does, from the counts of the snapshot; if these have
-- changed, nothing is written. A task that does not exist any more is skipped. Rows are written in the
-- order of their ids, in which they are claimed: task_copy.py gives the reason.
--
-- The copies keep their positions. The tasks that they replace are counted in their run by how they
-- ended: from this commit on, the copies are the latest tasks (schema/0001_batches.sql).
--
-- $1 org   $2 run   $3 part   $4 the run's tasks before   $5 the part's offset before
-- $6 the offset after   $7 whether it is the last chunk
-- $8 ids of the tasks to copy, in order   $9 ids of the copies, as many   $10 the run's flow
-- $11 jobs.webhook of the copies   $12 the tasks' positions, in order of $8
-- $13 ids of the tasks that the copies replace, the latest of these positions: NULL if that is the
-- copied task itself
WITH old AS MATERIALIZED (
    SELECT j.payload, j.custom_id, j.flow, j.run_id, j.state, t.position, t.replaced,
           row_number() OVER (ORDER BY t.number) AS number
    FROM unnest($8::uuid[], $12::integer[], $13::uuid[])
        WITH ORDINALITY AS t (id, position, replaced, number)
    JOIN jobs AS j ON j.org_id = $1 AND j.id = t.id
),
run AS (
    UPDATE runs AS r
    SET tasks = r.tasks + taken.tasks, lines = r.lines + taken.tasks,
        mirrored = CASE
            WHEN r.mirrored = r.tasks AND taken.in_place THEN r.mirrored + taken.tasks
            ELSE r.mirrored
        END
    FROM (
        SELECT count(*)::integer AS tasks, bool_and(o.position = $4::integer + o.number - 1) AS in_place
        FROM old AS o
    ) AS taken
    WHERE r.org_id = $1 AND r.id = $2 AND r.tasks = $4::integer AND r.latched_at IS NULL
      AND r.cancel_requested_at IS NULL
    RETURNING r.org_id, r.id, r.number, r.mirrored, taken.tasks
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
),
placed AS (
    INSERT INTO batch_positions (org_id, batch_id, position, run_number, run_id, task_index)
    SELECT p.org_id, p.batch_id, o.position, r.number, r.id, $4 + o.number - 1
    FROM part AS p
    CROSS JOIN run AS r
    CROSS JOIN old AS o
    WHERE r.mirrored < $4 + r.tasks
),
replaced AS (
    UPDATE runs AS b
    SET replaced_succeeded = b.replaced_succeeded + was.succeeded,
        replaced_failed = b.replaced_failed + was.failed,
        replaced_cancelled = b.replaced_cancelled + was.cancelled
    FROM part AS p
    CROSS JOIN (
        SELECT latest.run_id,
               (count(*) FILTER (WHERE latest.state = 'completed'))::integer AS succeeded,
               (count(*) FILTER (WHERE latest.state = 'failed'))::integer AS failed,
               (count(*) FILTER (WHERE latest.state = 'cancelled'))::integer AS cancelled
        FROM (
            SELECT o.run_id, o.state FROM old AS o WHERE o.replaced IS NULL
            UNION ALL
            SELECT j.run_id, j.state
            FROM old AS o
            JOIN jobs AS j ON j.org_id = $1 AND j.id = o.replaced
        ) AS latest
        GROUP BY latest.run_id
    ) AS was
    WHERE b.org_id = p.org_id AND b.id = was.run_id
)
SELECT r.tasks FROM part AS p CROSS JOIN run AS r
