-- name: tasks_of_chunk
-- The tasks of `ended` as an export writes them: at least one, and no more after their results have
-- :bytes_max bytes. The length of a result is known without reading the result.
SELECT chunk.id, chunk.task_index, chunk.custom_id, chunk.attempts, chunk.finished_at, chunk.result,
       chunk.error_code, chunk.error_message,
       (
           SELECT json_agg(json_build_object(
               'name', a.name, 'media_type', a.media_type, 'bytes', a.bytes,
               'sha256', encode(a.sha256, 'hex')
           ) ORDER BY a.name)::text
           FROM artifacts AS a
           WHERE a.org_id = :org AND a.job_id = chunk.id
       ) AS artifacts,
       coalesce((
           SELECT p.position
           FROM batch_positions AS p
           WHERE p.org_id = :org AND p.run_id = :run AND p.task_index = chunk.task_index
       ), chunk.task_index) AS position, chunk.run_id
FROM (
    SELECT e.*,
           e.failures + e.crashes + CASE WHEN e.state = 'completed' THEN 1 ELSE 0 END AS attempts,
           sum(octet_length(e.result)) OVER (
               ORDER BY e.task_index ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS bytes_before
    FROM ended AS e
) AS chunk
WHERE coalesce(chunk.bytes_before, 0) < :bytes_max::bigint
ORDER BY chunk.task_index

-- name: complete
-- pending -> completed, when the blob is complete. Fenced by the lease of the job that wrote it. Sent
-- again after its response was lost, it returns the same row. No row: the lease is lost, or the batch
-- was deleted; the caller then deletes the blob. An export expires with its batch at the latest.
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id FROM jobs AS j
    WHERE j.org_id = :org AND j.id = :job AND j.lease = :lease
    FOR SHARE
)
UPDATE batch_exports AS e
SET state = 'completed', blob_key = :blob_key, bytes = :size, sha256 = :sha256, tasks_written = :tasks,
    completed_at = now(),
    expires_at = least(now() + :keep_seconds::integer * interval '1 second', b.expires_at)
FROM held AS h, batches AS b
WHERE e.org_id = :org AND e.id = :export AND h.id = e.export_job
  AND (e.state = 'pending' OR e.blob_key = :blob_key)
  AND b.org_id = e.org_id AND b.id = e.batch_id AND b.deleted_at IS NULL
RETURNING e.id

-- name: create
-- Create an export, after the job that writes it, in the same transaction. If the batch is being removed,
-- no export is written; its job finds none, and ends. A repeat changes nothing.
INSERT INTO batch_exports (org_id, id, batch_id, run_id, export_job, all_runs)
SELECT b.org_id, :export::uuid, b.id, :run::uuid, :job::uuid, :all_runs::boolean
FROM batches AS b
WHERE b.org_id = :org AND b.id = :batch AND b.deleted_at IS NULL
ON CONFLICT DO NOTHING

-- name: delete
-- Delete the rows of exports whose blobs were deleted before.
DELETE FROM batch_exports AS e
USING unnest(:orgs::text[], :ids::uuid[]) AS gone (org_id, id)
WHERE e.org_id = gone.org_id AND e.id = gone.id

-- name: ended
-- A chunk of a run's tasks that ended in one state, in order: one range of ended_tasks. At most :limit rows,
-- and those of chunk.
WITH ended AS (
    SELECT j.*
    FROM (/* include coatcheck.core:jobs/ended_tasks */) AS e
    CROSS JOIN LATERAL (SELECT * FROM jobs AS j WHERE j.org_id = :org AND j.id = e.id OFFSET 0) AS j
    ORDER BY e.number
)
/* include exports/tasks_of_chunk */

-- name: ended_by_ids
-- Tasks of a run by their ids, which ended in one state, as ended.
WITH ended AS (
    SELECT j.*
    FROM unnest(:ids::uuid[]) AS wanted (id)
    CROSS JOIN LATERAL (SELECT * FROM jobs AS j WHERE j.org_id = :org AND j.id = wanted.id OFFSET 0) AS j
    WHERE j.run_id = :run AND j.state = :state::text::job_state
    ORDER BY j.task_index
)
/* include exports/tasks_of_chunk */

-- name: expired
-- Expired exports. Callers cannot read them any more; maintenance deletes their blobs, then their rows.
SELECT e.org_id, e.id, e.blob_key
FROM batch_exports AS e
WHERE e.expires_at <= now()
ORDER BY e.expires_at
LIMIT :rows_max

-- name: fail_lost
-- pending -> failed, for exports whose job ended without writing them, or does not exist any more.
WITH lost AS MATERIALIZED (
    SELECT e.org_id, e.id, j.error_code, j.error_message
    FROM batch_exports AS e
    LEFT JOIN jobs AS j ON j.org_id = e.org_id AND j.id = e.export_job
    WHERE e.state = 'pending' AND (j.id IS NULL OR j.state IN ('completed', 'failed', 'cancelled'))
    ORDER BY e.created_at
    LIMIT :rows_max::integer
    FOR UPDATE OF e SKIP LOCKED
)
UPDATE batch_exports AS e
SET state = 'failed', error_code = coalesce(l.error_code, 'export_lost'),
    error_message = coalesce(l.error_message, 'the export was not written; ask for another'),
    expires_at = now() + :keep_seconds::integer * interval '1 second'
FROM lost AS l
WHERE e.org_id = l.org_id AND e.id = l.id
RETURNING e.id, e.batch_id

-- name: get
-- An export of a batch, unless it has expired.
SELECT /* include exports/view_columns */
FROM batch_exports AS e
WHERE e.org_id = :org AND e.batch_id = :batch AND e.id = :export
  AND (e.expires_at IS NULL OR e.expires_at > now())

-- name: get_pending
-- Everything that writing an export needs, in the order of PendingExport. No row: it was written, or
-- its batch was deleted.
SELECT e.id, e.batch_id, e.run_id, b.service, b.service_endpoint, b.endpoint,
       r.number, now() AS begun_at, e.all_runs
FROM batch_exports AS e
JOIN batches AS b ON b.org_id = e.org_id AND b.id = e.batch_id AND b.deleted_at IS NULL
JOIN runs AS r ON r.org_id = e.org_id AND r.id = e.run_id
WHERE e.org_id = :org AND e.id = :export AND e.state = 'pending'

-- name: known
-- Those of these blobs that belong to an export that has not expired.
SELECT e.blob_key
FROM unnest(:ids::uuid[], :keys::text[]) AS b (id, blob_key)
JOIN batch_exports AS e ON e.id = b.id AND e.blob_key = b.blob_key
WHERE e.expires_at IS NULL OR e.expires_at > now()

-- name: list
-- The exports of a batch, newest first.
SELECT /* include exports/view_columns */
FROM batch_exports AS e
WHERE e.org_id = :org AND e.batch_id = :batch AND (e.expires_at IS NULL OR e.expires_at > now())
ORDER BY e.id DESC
LIMIT :limit

-- name: of_batch
-- Exports of a batch that is being removed.
SELECT e.org_id, e.id, e.blob_key
FROM batch_exports AS e
WHERE e.org_id = :org AND e.batch_id = :batch
ORDER BY e.id
LIMIT :rows_max

-- name: update_progress
-- Record how many tasks are in the export so far. Fenced by the lease of the job that writes it.
UPDATE batch_exports AS e
SET tasks_written = :tasks
FROM jobs AS j
WHERE e.org_id = :org AND e.id = :export AND e.state = 'pending'
  AND j.org_id = e.org_id AND j.id = e.export_job AND j.id = :job AND j.lease = :lease
RETURNING e.id

-- name: view_columns
-- The columns of an export, in the order of ExportView.
e.id, e.batch_id, e.run_id, e.state, e.blob_key, e.bytes, e.sha256, e.tasks_written, e.error_code,
       e.error_message, e.created_at, e.completed_at, e.expires_at, e.all_runs
