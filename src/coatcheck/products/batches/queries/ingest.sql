-- name: advance
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
-- :run_tasks and :part_offset are the counts before.
WITH whole AS MATERIALIZED (
    SELECT sum(CASE WHEN every.number = 1 THEN every.tasks ELSE every.new_tasks END)::integer
               AS tasks
    FROM runs AS this
    JOIN runs AS every ON every.org_id = this.org_id AND every.group_id = this.group_id
    WHERE this.org_id = :org AND this.id = :run AND this.number > 1
),
run AS (
    UPDATE runs AS r
    SET tasks = r.tasks + :tasks::integer, lines = r.lines + :lines::bigint,
        bad_lines = r.bad_lines + :bad_lines::bigint,
        new_tasks = CASE WHEN r.number > 1 THEN r.new_tasks + :tasks ELSE 0 END,
        mirrored = CASE
            WHEN r.number > 1 AND r.mirrored = r.tasks AND whole.tasks = r.tasks
            THEN r.mirrored + :tasks ELSE r.mirrored
        END
    FROM whole
    WHERE r.org_id = :org AND r.id = :run AND r.tasks = :run_tasks::integer AND r.latched_at IS NULL
      AND r.cancel_requested_at IS NULL
    RETURNING r.org_id, r.id, r.group_id, r.number, r.mirrored, whole.tasks AS first_position
),
part AS (
    UPDATE batch_parts AS p
    SET source_offset = p.source_offset + :size::bigint, lines = p.lines + :lines,
        bad_lines = p.bad_lines + :bad_lines, tasks = p.tasks + :tasks, updated_at = now(),
        state = CASE WHEN :is_last::boolean AND p.tasks + :tasks > 0 THEN 'done' ELSE 'pending' END
    FROM run AS r
    WHERE p.org_id = r.org_id AND p.run_id = r.id AND p.id = :part AND p.state = 'pending'
      AND p.source_offset = :part_offset::bigint
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
    CROSS JOIN unnest(:bad_numbers::bigint[], :bad_codes::text[], :bad_messages::text[])
        AS bad (line, code, message)
),
placed AS (
    INSERT INTO batch_positions (org_id, batch_id, position, run_number, run_id, task_index)
    SELECT r.org_id, r.group_id, r.first_position + at, r.number, r.id, :run_tasks + at
    FROM part AS p
    CROSS JOIN run AS r
    CROSS JOIN generate_series(0, :tasks - 1) AS at
    WHERE r.number > 1 AND r.mirrored < :run_tasks + :tasks
)
SELECT p.id FROM part AS p

-- name: assign_job
-- Assign another job to a pending part, if the part has not changed since the reconciler read it.
UPDATE batch_parts AS p
SET ingest_job = :job, redrives = p.redrives + 1, updated_at = now()
FROM runs AS r
WHERE p.org_id = :org AND p.id = :part AND p.state = 'pending'
  AND p.ingest_job IS NOT DISTINCT FROM :old_job::uuid
  AND r.org_id = p.org_id AND r.id = p.run_id AND r.cancel_requested_at IS NULL
RETURNING p.id

-- name: bad_lines
-- The invalid lines of a run's lists: the lists in their order, and the lines in theirs.
SELECT p.position, bad.line, bad.code, bad.message
FROM batch_parts AS p
CROSS JOIN LATERAL (
    SELECT l.line, l.code, l.message
    FROM batch_bad_lines AS l
    WHERE l.org_id = p.org_id AND l.part_id = p.id
      AND l.line > CASE WHEN p.position = :after_position::integer THEN :after_line::bigint ELSE 0 END
    ORDER BY l.line
    LIMIT :limit::integer
) AS bad
WHERE p.org_id = :org AND p.run_id = :run AND p.position >= :after_position AND p.bad_lines > 0
ORDER BY p.position, bad.line
LIMIT :limit

-- name: dead_letters
-- An organisation's parts whose ingest failed, newest first: of one owner, or of all.
SELECT p.id, p.batch_id, p.run_id, p.source, p.error_code, p.error_message, p.lines, p.tasks,
       p.redrives, p.created_at, p.updated_at AS failed_at
FROM batch_parts AS p
JOIN batches AS b ON b.org_id = p.org_id AND b.id = p.batch_id AND b.deleted_at IS NULL
WHERE p.org_id = :org AND p.state = 'failed' AND p.id < :after
  AND (:owner::text IS NULL OR b.owner = :owner)
ORDER BY p.id DESC
LIMIT :limit

-- name: fail_part
-- pending -> failed, for a part whose ingest failed. It waits for a redrive, a rerun or a DELETE. The
-- tasks that were ingested before stay, and run.
--
-- With :job, a part that was assigned to another job since is left to that one.
UPDATE batch_parts AS p
SET state = 'failed', error_code = :code, error_message = :message, updated_at = now()
WHERE p.org_id = :org AND p.id = :part AND p.state = 'pending'
  AND (:job::uuid IS NULL OR p.ingest_job = :job)
RETURNING p.batch_id

-- name: known_lists
-- Those of these stored lists that a part still needs, because its ingest has not ended or failed. The
-- pieces of the others are orphans.
SELECT p.source_key
FROM unnest(:parts::uuid[], :keys::text[]) AS b (id, source_key)
JOIN batch_parts AS p ON p.id = b.id AND p.source_key = b.source_key
WHERE p.state <> 'done'

-- name: latch
-- Latch a run: set its total, as an absolute number, and let it complete from now on. Only if it is
-- closed and every part of it was ingested. A repeat changes nothing.
--
-- A separate statement, after the one that made a part done or closed the run: both lock the run, so
-- the second of them sees what the first has done.
UPDATE runs AS r
SET total = r.tasks, latched_at = now()
WHERE r.org_id = :org AND r.id = :run AND r.closed_at IS NOT NULL AND r.latched_at IS NULL
  AND NOT EXISTS (
      SELECT
      FROM batch_parts AS p
      WHERE p.org_id = r.org_id AND p.run_id = r.id AND p.state <> 'done'
  )
RETURNING r.group_id AS batch_id

-- name: latch_missed
-- Latch the runs whose latch was missed: the process that ingested the last part, or closed the run,
-- died before it.
UPDATE runs AS r
SET total = r.tasks, latched_at = now()
FROM (
    SELECT u.org_id, u.id
    FROM runs AS u
    WHERE u.completed_at IS NULL AND u.closed_at IS NOT NULL AND u.latched_at IS NULL
      AND NOT EXISTS (
          SELECT
          FROM batch_parts AS p
          WHERE p.org_id = u.org_id AND p.run_id = u.id AND p.state <> 'done'
      )
    LIMIT :runs_max::integer
    FOR UPDATE SKIP LOCKED
) AS left_open
WHERE r.org_id = left_open.org_id AND r.id = left_open.id
RETURNING r.group_id AS batch_id

-- name: lock_failed
-- Lock the run of a failed part, as every change of a run's parts and tasks does. No row if the run
-- was cancelled. Also finds a part that this job was assigned to before, for a repeat.
SELECT r.id
FROM batch_parts AS p
JOIN batches AS b ON b.org_id = p.org_id AND b.id = p.batch_id AND b.deleted_at IS NULL
JOIN runs AS r ON r.org_id = p.org_id AND r.id = p.run_id
WHERE p.org_id = :org AND p.id = :part AND (p.state = 'failed' OR p.ingest_job = :job)
  AND r.cancel_requested_at IS NULL AND (:owner::text IS NULL OR b.owner = :owner)
FOR UPDATE OF r

-- name: lock_run
-- Lock a run for the transaction that writes a chunk, and count its tasks.
SELECT r.tasks FROM runs AS r WHERE r.org_id = :org AND r.id = :run FOR UPDATE

-- name: lost
-- Pending parts that no job ingests: their job was lost, or ended without them.
--
-- Oldest first.
SELECT p.org_id, p.id, p.batch_id, p.ingest_job, p.redrives, b.request_id, j.state::text,
       j.error_code, j.error_message
FROM batch_parts AS p
JOIN runs AS r ON r.org_id = p.org_id AND r.id = p.run_id
JOIN batches AS b ON b.org_id = p.org_id AND b.id = p.batch_id
LEFT JOIN jobs AS j ON j.org_id = p.org_id AND j.id = p.ingest_job
WHERE p.state = 'pending' AND r.cancel_requested_at IS NULL AND b.deleted_at IS NULL
  AND (j.id IS NULL OR j.state IN ('completed', 'failed', 'cancelled'))
ORDER BY p.updated_at
LIMIT :parts_max::integer

-- name: queue_next
-- retrying -> queued, for the job of the run's next part. It found other parts before it, and waits
-- with growing delays: so any number of waiting parts costs few attempts. No webhook is written: it is
-- an internal job.
WITH changed AS (
    UPDATE jobs AS j
    SET state = 'queued', run_at = now(), updated_at = now()
    FROM (
        SELECT p.org_id, p.ingest_job
        FROM batch_parts AS p
        WHERE p.org_id = :org AND p.run_id = :run AND p.state = 'pending' AND p.state <> 'done'
        ORDER BY p.position
        LIMIT 1
    ) AS following
    WHERE j.org_id = following.org_id AND j.id = following.ingest_job AND j.state = 'retrying'
    RETURNING j.org_id, j.id, j.lane, j.endpoint, j.flow, j.run_at, old.state AS previous
),
queued AS (
    SELECT c.org_id, c.id, c.lane, c.endpoint, c.flow, c.run_at FROM changed AS c
),
added AS (
    /* include coatcheck.core:queue/add */
),
/* include coatcheck.core:postponed/leave */
SELECT c.id FROM changed AS c

-- name: redrive
-- failed -> pending, for a part that another job now ingests from where it stopped. Its error stays
-- recorded until then. Sent again after its response was lost, it returns the same row.
WITH was AS MATERIALIZED (
    SELECT p.id, p.state, p.updated_at
    FROM batch_parts AS p
    WHERE p.org_id = :org AND p.id = :part AND p.run_id = :run
      AND (p.state = 'failed' OR p.ingest_job = :job)
    FOR UPDATE
)
UPDATE batch_parts AS p
SET state = CASE w.state WHEN 'failed' THEN 'pending' ELSE w.state END,
    redrives = p.redrives + (w.state = 'failed')::integer, ingest_job = :job, updated_at = now()
FROM was AS w
WHERE p.org_id = :org AND p.id = w.id
RETURNING p.id, p.batch_id, p.run_id, p.source, p.error_code, p.error_message, p.lines, p.tasks,
          p.redrives, p.created_at, w.updated_at

-- name: rerun_chunk
-- Copy tasks of earlier runs into a new one. One statement, so that their payloads stay on the server.
--
-- Advances the run and its part as advance does, from the counts of the snapshot; if these have
-- changed, nothing is written. A task that does not exist any more is skipped. Rows are written in the
-- order of their ids, in which they are claimed: ingest_repository.py gives the reason.
--
-- The copies keep their positions. The tasks that they replace are counted in their run by how they
-- ended: from this commit on, the copies are the latest tasks (schema/0001_batches.sql).
--
-- :copies are the ids of the copies of :sources. :replaced are the latest tasks of the :positions, which
-- the copies replace: NULL if that is the copied task itself.
WITH old AS MATERIALIZED (
    SELECT j.payload, j.custom_id, j.flow, j.run_id, j.state, t.position, t.replaced,
           row_number() OVER (ORDER BY t.number) AS number
    FROM unnest(:sources::uuid[], :positions::integer[], :replaced::uuid[])
        WITH ORDINALITY AS t (id, position, replaced, number)
    JOIN jobs AS j ON j.org_id = :org AND j.id = t.id
),
run AS (
    UPDATE runs AS r
    SET tasks = r.tasks + taken.tasks, lines = r.lines + taken.tasks,
        mirrored = CASE
            WHEN r.mirrored = r.tasks AND taken.in_place THEN r.mirrored + taken.tasks
            ELSE r.mirrored
        END
    FROM (
        SELECT count(*)::integer AS tasks,
               bool_and(o.position = :run_tasks::integer + o.number - 1) AS in_place
        FROM old AS o
    ) AS taken
    WHERE r.org_id = :org AND r.id = :run AND r.tasks = :run_tasks::integer AND r.latched_at IS NULL
      AND r.cancel_requested_at IS NULL
    RETURNING r.org_id, r.id, r.number, r.mirrored, taken.tasks
),
part AS (
    UPDATE batch_parts AS p
    SET source_offset = :next_offset::bigint, lines = p.lines + r.tasks, tasks = p.tasks + r.tasks,
        updated_at = now(), state = CASE WHEN :is_last::boolean THEN 'done' ELSE 'pending' END
    FROM run AS r
    WHERE p.org_id = r.org_id AND p.run_id = r.id AND p.id = :part AND p.state = 'pending'
      AND p.source_offset = :part_offset::bigint
    RETURNING p.org_id, p.id, p.batch_id
),
written AS (
    INSERT INTO jobs (
        org_id, id, lane, endpoint, flow, failures_max, payload, owner, request_id, run_id,
        task_index, custom_id, webhook
    )
    SELECT p.org_id, (:copies::uuid[])[o.number], b.lane, b.endpoint,
           :queue_key::text || substr(o.flow, 33), b.failures_max, o.payload, b.owner, b.request_id,
           :run, :run_tasks + o.number - 1, o.custom_id, :webhook::smallint
    FROM part AS p
    JOIN batches AS b ON b.org_id = p.org_id AND b.id = p.batch_id
    CROSS JOIN old AS o
    ORDER BY (:copies::uuid[])[o.number]
    RETURNING org_id, id, lane, endpoint, flow, run_at
),
/* include batches/queue_written */,
placed AS (
    INSERT INTO batch_positions (org_id, batch_id, position, run_number, run_id, task_index)
    SELECT p.org_id, p.batch_id, o.position, r.number, r.id, :run_tasks + o.number - 1
    FROM part AS p
    CROSS JOIN run AS r
    CROSS JOIN old AS o
    WHERE r.mirrored < :run_tasks + r.tasks
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
            JOIN jobs AS j ON j.org_id = :org AND j.id = o.replaced
        ) AS latest
        GROUP BY latest.run_id
    ) AS was
    WHERE b.org_id = p.org_id AND b.id = was.run_id
)
SELECT r.tasks FROM part AS p CROSS JOIN run AS r

-- name: select_ended
-- The numbers of a run's next tasks that ended in one state, with one of some error codes.
-- jobs/ended_tasks says why it reads 64 more.
SELECT n.number
FROM (
    SELECT e.number
    FROM (/* include coatcheck.core:jobs/blocks_of_ended_tasks */) AS e
    WHERE e.number > :after AND /* include tasks/has_code */
    LIMIT :limit::integer + 64
) AS n
ORDER BY n.number
LIMIT :limit

-- name: set_job
-- Record the job that ingests a part.
UPDATE batch_parts SET ingest_job = :job, updated_at = now() WHERE org_id = :org AND id = :part

-- name: snapshot
-- Everything that the ingest of a part needs, in the order of IngestSnapshot.
--
-- A part is next if no part before it is pending. A failed part does not delay it: if that is redriven
-- later, its tasks follow those that exist by then. A rerun also waits for the earlier runs: one that
-- it replaces may still be stopping.
SELECT p.org_id, p.batch_id, p.run_id, p.id, p.source, p.source_key, p.source_pieces,
       p.source_bytes, p.upload_id, p.state,
       NOT EXISTS (
           SELECT
           FROM batch_parts AS e
           WHERE e.org_id = p.org_id AND e.run_id = p.run_id AND e.position < p.position
             AND e.state = 'pending' AND e.state <> 'done'
       ) AS is_next,
       r.tasks, p.source_offset, p.lines, p.bad_lines, p.tasks, taken_from.run,
       coalesce(parent.tasks, 0), taken_from.selection::text, b.owner, b.endpoint, b.lane::text,
       b.failures_max, b.payload_prefix, b.payload_suffix, b.rate_key,
       r.webhook_target IS NOT NULL AND 'task.failed' = ANY (b.webhook_events),
       b.request_id,
       r.cancel_requested_at IS NOT NULL OR r.completed_at IS NOT NULL OR b.deleted_at IS NOT NULL,
       p.source_etag,
       (SELECT o.backlog_max FROM orgs AS o WHERE o.org_id = p.org_id), r.number, p.source_before,
       p.source = 'rerun' AND EXISTS (
           SELECT
           FROM runs AS e
           WHERE e.org_id = r.org_id AND e.group_id = r.group_id AND e.number < r.number
             AND e.completed_at IS NULL
       ) AS waits_for_a_run
FROM batch_parts AS p
JOIN runs AS r ON r.org_id = p.org_id AND r.id = p.run_id
JOIN batches AS b ON b.org_id = p.org_id AND b.id = p.batch_id
CROSS JOIN LATERAL (
    SELECT coalesce(p.source_run, r.parent_run) AS run,
           CASE WHEN p.source_run IS NULL THEN r.selection ELSE p.source_selection END AS selection
) AS taken_from
LEFT JOIN runs AS parent ON parent.org_id = r.org_id AND parent.id = taken_from.run
WHERE p.org_id = :org AND p.id = :part
