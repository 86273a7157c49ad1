-- name: abandon_voice
-- Mark a failed upload as deleted, so that the cleanup removes its blob and row.
UPDATE voices AS v
SET deleted_at = now()
WHERE v.org_id = :org AND v.id = :voice AND v.deleted_at IS NULL
RETURNING v.id

-- name: changes
-- A user's tasks that changed after one snapshot and up to another, in the order of their generations,
-- as org_jobs/changes does for an organisation. Scans the newest :rows_max tasks with the index
-- generations_of_user. Read under coatcheck_user.
WITH horizon AS MATERIALIZED (
    /* include coatcheck.core:lists/horizon */
),
walked AS MATERIALIZED (
    SELECT newest.id, j.state, /* include coatcheck.core:lists/row_transaction */ AS written_by
    FROM horizon AS h, (
        SELECT g.org_id, g.id, g.job_id
        FROM generations AS g
        WHERE g.org_id = :org AND g.user_id = :user
        ORDER BY g.id DESC
        LIMIT :rows_max
    ) AS newest
    JOIN jobs AS j ON j.org_id = newest.org_id AND j.id = newest.job_id
),
page AS MATERIALIZED (
    SELECT w.id
    FROM walked AS w, horizon AS h
    WHERE w.id > :after::uuid AND /* include coatcheck.core:lists/is_changed */
    ORDER BY w.id
    LIMIT :limit
)
SELECT h.seen::text AS seen, t.*
FROM horizon AS h
LEFT JOIN page AS p ON true
LEFT JOIN LATERAL (
    SELECT /* include task_columns */
    FROM /* include task_joins */
    WHERE g.org_id = :org AND g.user_id = :user AND g.id = p.id
) AS t ON true
ORDER BY t.generation_id

-- name: complete_voice
-- Mark a voice's upload as complete. Returns no row if the cleanup has removed the upload.
UPDATE voices AS v
SET ready_at = coalesce(v.ready_at, now()), bytes = :size, sha256 = :sha256, duration_seconds = :seconds
WHERE v.org_id = :org AND v.id = :voice AND v.deleted_at IS NULL
RETURNING /* include voice_columns */

-- name: create_generation
-- Create the generation of a job that the transaction has just created.
INSERT INTO generations (
    org_id, id, user_id, job_id, voice_id, language, text, description, clone_id
)
VALUES (:org, :generation, :user, :job, :voice, :language, :text, :description, :clone)

-- name: create_voice
-- Create a voice whose audio is about to be uploaded. It is not visible yet.
INSERT INTO voices (org_id, id, user_id, blob_key)
VALUES (:org, :voice, :user, :blob_key)
ON CONFLICT DO NOTHING

-- name: delete_voice
-- Delete a voice: it is no longer visible. Its row stays until its blob is deleted.
UPDATE voices AS v
SET deleted_at = now()
WHERE v.org_id = :org AND v.user_id = :user AND v.id = :voice
  AND v.ready_at IS NOT NULL AND v.deleted_at IS NULL
RETURNING v.id

-- name: delete_voice_rows
-- Delete the rows of voices whose blobs are deleted.
DELETE FROM voices AS v
USING unnest(:orgs::text[], :voices::uuid[]) AS gone (org_id, id)
WHERE v.org_id = gone.org_id AND v.id = gone.id AND v.deleted_at IS NOT NULL

-- name: lock_voice
-- Lock a voice, so that it is not deleted before the transaction that creates a job with it ends.
SELECT v.id
FROM voices AS v
WHERE v.org_id = :org AND v.user_id = :user AND v.id = :voice
  AND v.ready_at IS NOT NULL AND v.deleted_at IS NULL
FOR SHARE

-- name: removed_with_jobs
-- A part of core's maintenance/prune: deletes the generations of the jobs in `old`.
DELETE FROM generations AS g USING old AS o WHERE g.org_id = o.org_id AND g.job_id = o.id

-- name: repeat_generation
-- Create a generation with the text of an older one, for a job that the transaction has just created to
-- retry the older one's job.
INSERT INTO generations (
    org_id, id, user_id, job_id, voice_id, language, text, description, clone_id
)
SELECT g.org_id, :generation::uuid, g.user_id, :job::uuid, g.voice_id, g.language, g.text,
       g.description, g.clone_id
FROM generations AS g
WHERE g.org_id = :org AND g.job_id = :old_job

-- name: set_user_role
-- Until the end of the transaction, read as the role that sees only this user's rows. The settings are
-- local to the transaction, so they end with it, committed or not.
SELECT set_config('role', 'coatcheck_user', true),
       set_config('coatcheck.org', :org, true),
       set_config('coatcheck.user', :user, true)

-- name: task
-- A user's task, by its generation. Read under coatcheck_user.
SELECT /* include task_columns */
FROM /* include task_joins */
WHERE g.org_id = :org AND g.user_id = :user AND g.id = :generation

-- name: task_columns
-- A task's generation, its file and its job: included by task, tasks and changes, in the order
-- in which repository.py reads them. :characters_max cuts the text.
g.id AS generation_id, g.voice_id, g.language, left(g.text, :characters_max::integer) AS said,
       length(g.text) AS characters, g.created_at AS generated_at, g.description, g.clone_id,
       a.name, a.blob_key, a.media_type, a.bytes, a.sha256,
       /* include coatcheck.core:jobs/view_columns */, j.result

-- name: task_joins
-- A generation, its job, and its file if that exists: a task has one file.
generations AS g
JOIN jobs AS j ON j.org_id = g.org_id AND j.id = g.job_id
LEFT JOIN LATERAL (
    SELECT a.name, a.blob_key, a.media_type, a.bytes, a.sha256
    FROM artifacts AS a
    WHERE a.org_id = g.org_id AND a.job_id = g.job_id AND j.state = 'completed'
    LIMIT 1
) AS a ON true

-- name: tasks
-- A page of a user's tasks, newest first, with the index generations_of_user: a generation's id has the
-- timestamp of its job's id. Read under coatcheck_user.
SELECT /* include task_columns */
FROM /* include task_joins */
WHERE g.org_id = :org AND g.user_id = :user AND g.id < :before::uuid AND g.id >= :above::uuid
  AND /* include coatcheck.core:lists/every_list */
  AND (:states::text[] IS NULL OR j.state = ANY (:states::text[]::job_state[]))
  AND j.endpoint = ANY (:endpoints::text[])
ORDER BY g.id DESC
LIMIT :limit

-- name: voice
-- A user's voice, if its upload is complete. Read under coatcheck_user.
SELECT /* include voice_columns */
FROM voices AS v
WHERE v.org_id = :org AND v.user_id = :user AND v.id = :voice
  AND v.ready_at IS NOT NULL AND v.deleted_at IS NULL

-- name: voice_columns
-- The columns of a voice, in the order of StoredVoice.
v.id, v.blob_key, v.created_at, v.bytes, v.sha256, v.duration_seconds

-- name: voices
-- A page of a user's voices, newest first. Read under coatcheck_user.
SELECT /* include voice_columns */
FROM voices AS v
WHERE v.org_id = :org AND v.user_id = :user AND v.id < :after::uuid
  AND v.ready_at IS NOT NULL AND v.deleted_at IS NULL
ORDER BY v.id DESC
LIMIT :limit

-- name: voices_to_remove
-- Voices whose blobs are due for removal: deleted ones, and uploads that took too long. The latter are
-- marked as deleted first, so that a process which still uploads gets an error. Uses the index
-- voices_to_remove.
UPDATE voices AS v
SET deleted_at = coalesce(v.deleted_at, now())
FROM (
    SELECT o.org_id, o.id
    FROM voices AS o
    WHERE (o.ready_at IS NULL OR o.deleted_at IS NOT NULL)
      AND coalesce(o.deleted_at, o.created_at)
          <= now() - CASE WHEN o.deleted_at IS NULL THEN :upload_seconds_max::double precision ELSE 0 END
                     * interval '1 second'
      AND coalesce(o.deleted_at, o.created_at) <= now()
    ORDER BY coalesce(o.deleted_at, o.created_at)
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
) AS due
WHERE v.org_id = due.org_id AND v.id = due.id
RETURNING v.org_id, v.id, v.blob_key
