-- Advance a run and its part past the chunk that the transaction has written.
--
-- Only from the counts that the chunk was numbered with: a writer that was overtaken, or comes after
-- a cancellation, changes nothing, and rolls back its tasks. The run is locked before the part, as in
-- every change of a run's parts and tasks; and last in the transaction, so that nobody waits for it
-- while a chunk is being written.
--
-- The last chunk makes the part done, unless the part has no task, and releases its upload.
--
-- In a run after the first, these tasks are new to the batch: their positions follow all existing
-- ones (schema/0001_batches.sql).
--
-- $1 org   $2 run   $3 part   $4 the run's tasks before   $5 the part's offset before
-- $6 bytes ingested   $7 lines   $8 invalid ones   $9 tasks   $10 whether it is the last chunk
-- $11-$13 invalid lines: number, code, message
WITH whole AS MATERIALIZED (
    SELECT sum(CASE WHEN every.number = 1 THEN every.tasks ELSE every.new_tasks END)::integer
               AS tasks
    FROM runs AS this
    JOIN runs AS every ON every.org_id = this.org_id AND every.group_id = this.group_id
    WHERE this.org_id = $1 AND this.id = $2 AND this.number > 1
),
run AS (
    UPDATE runs AS r
    SET tasks = r.tasks + $9::integer, lines = r.lines + $7::bigint,
        bad_lines = r.bad_lines + $8::bigint,
        new_tasks = CASE WHEN r.number > 1 THEN r.new_tasks + $9 ELSE 0 END,
        mirrored = CASE
            WHEN r.number > 1 AND r.mirrored = r.tasks AND whole.tasks = r.tasks
            THEN r.mirrored + $9 ELSE r.mirrored
        END
    FROM whole
    WHERE r.org_id = $1 AND r.id = $2 AND r.tasks = $4::integer AND r.latched_at IS NULL
      AND r.cancel_requested_at IS NULL
    RETURNING r.org_id, r.id, r.group_id, r.number, r.mirrored, whole.tasks AS first_position
),
part AS (
    UPDATE batch_parts AS p
    SET source_offset = p.source_offset + $6::bigint, lines = p.lines + $7,
        bad_lines = p.bad_lines + $8, tasks = p.tasks + $9, updated_at = now(),
        state = CASE WHEN $10::boolean AND p.tasks + $9 > 0 THEN 'done' ELSE 'pending' END
    FROM run AS r
    WHERE p.org_id = r.org_id AND p.run_id = r.id AND p.id = $3 AND p.state = 'pending'
      AND p.source_offset = $5::bigint
    RETURNING p.org_id, p.id, p.upload_id, p.state
),
released AS (
    UPDATE uploads AS u SET released_at = now()
    FROM part AS p
    WHERE p.state = 'done' AND u.org_id = p.org_id AND u.id = p.upload_id
),
notified AS (
    INSERT INTO batch_bad_lines (org_id, part_id, line, code, message)
    SELECT p.org_id, p.id, bad.line, bad.code, bad.message
    FROM part AS p
    CROSS JOIN unnest($11::bigint[], $12::text[], $13::text[]) AS bad (line, code, message)
),
placed AS (
    INSERT INTO batch_positions (org_id, batch_id, position, run_number, run_id, task_index)
    SELECT r.org_id, r.group_id, r.first_position + at, r.number, r.id, $4 + at
    FROM part AS p
    CROSS JOIN run AS r
    CROSS JOIN generate_series(0, $9 - 1) AS at
    WHERE r.number > 1 AND r.mirrored < $4 + $9
)
SELECT p.id FROM part AS p
