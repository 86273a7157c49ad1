-- name: abandon_voice
-- Mark a failed upload as deleted, so that the cleanup removes its blob and row.
--
-- $1 organisation   $2 voice
UPDATE voices AS v
SET deleted_at = now()
WHERE v.org_id = $1 AND v.id = $2 AND v.deleted_at IS NULL
RETURNING v.id

-- name: changes
-- A user's tasks that changed after one snapshot and up to another, in the order of their generations,
-- as org_jobs/changes does for an organisation. Scans the newest $8 tasks with the index
-- generations_of_user. Read under coatcheck_user.
--
-- $1 organisation   $2 user   $3 characters of each text   $4, $5 see jobs/horizon
-- $6 after this generation   $7 limit   $8 tasks to scan
WITH horizon AS MATERIALIZED (
    /* include coatcheck.core:lists/horizon */
),
walked AS MATERIALIZED (
    SELECT newest.id, j.state, /* include coatcheck.core:lists/row_transaction */ AS written_by
    FROM horizon AS h, (
        SELECT g.org_id, g.id, g.job_id
        FROM generations AS g
        WHERE g.org_id = $1 AND g.user_id = $2
        ORDER BY g.id DESC
        LIMIT $8
    ) AS newest
    JOIN jobs AS j ON j.org_id = newest.org_id AND j.id = newest.job_id
),
page AS MATERIALIZED (
    SELECT w.id
    FROM walked AS w, horizon AS h
    WHERE w.id > $6::uuid AND /* include coatcheck.core:lists/is_changed */
    ORDER BY w.id
    LIMIT $7
)
SELECT h.seen::text AS seen, t.*
FROM horizon AS h
LEFT JOIN page AS p ON true
LEFT JOIN LATERAL (
    SELECT /* include task_columns */
    FROM /* include task_joins */
    WHERE g.org_id = $1 AND g.user_id = $2 AND g.id = p.id
) AS t ON true
ORDER BY t.generation_id

-- name: complete_voice
-- Mark a voice's upload as complete. Returns no row if the cleanup has removed the upload.
--
-- $1 organisation   $2 voice   $3 bytes   $4 SHA-256   $5 duration in seconds
UPDATE voices AS v
SET ready_at = coalesce(v.ready_at, now()), bytes = $3, sha256 = $4, duration_seconds = $5
WHERE v.org_id = $1 AND v.id = $2 AND v.deleted_at IS NULL
RETURNING /* include voice_columns */

-- name: create_voice
-- Create a voice whose audio is about to be uploaded. It is not visible yet.
--
-- $1 organisation   $2 voice   $3 user   $4 blob key
INSERT INTO voices (org_id, id, user_id, blob_key)
VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING

-- name: delete_voice
-- Delete a voice: it is no longer visible. Its row stays until its blob is deleted.
--
-- $1 organisation   $2 user   $3 voice
UPDATE voices AS v
SET deleted_at = now()
WHERE v.org_id = $1 AND v.user_id = $2 AND v.id = $3
  AND v.ready_at IS NOT NULL AND v.deleted_at IS NULL
RETURNING v.id

-- name: delete_voice_rows
-- Delete the rows of voices whose blobs are deleted.
--
-- $1 organisations   $2 voices
DELETE FROM voices AS v
USING unnest($1::text[], $2::uuid[]) AS gone (org_id, id)
WHERE v.org_id = gone.org_id AND v.id = gone.id AND v.deleted_at IS NOT NULL

-- name: lock_voice
-- Lock a voice, so that it is not deleted before the transaction that creates a job with it ends.
--
-- $1 organisation   $2 user   $3 voice
SELECT v.id
FROM voices AS v
WHERE v.org_id = $1 AND v.user_id = $2 AND v.id = $3
  AND v.ready_at IS NOT NULL AND v.deleted_at IS NULL
FOR SHARE

-- name: removed_with_jobs
-- A part of core's maintenance/prune: deletes the generations of the jobs in `old`.
DELETE FROM generations AS g USING old AS o WHERE g.org_id = o.org_id AND g.job_id = o.id

-- name: retry
-- Retry a task as org_jobs/retry does, and give the new job a generation with the same text.
--
-- $1-$8 see org_jobs/retry_created   $9 the new generation
WITH /* include coatcheck.core:org_jobs/retry_created */,
spoken AS (
    INSERT INTO generations (
        org_id, id, user_id, job_id, voice_id, language, text, description, clone_id
    )
    SELECT g.org_id, $9::uuid, g.user_id, c.id, g.voice_id, g.language, g.text, g.description, g.clone_id
    FROM created AS c
    JOIN generations AS g ON g.org_id = $1 AND g.job_id = $2
)
SELECT o.state::text AS state, o.payload IS NOT NULL AS input_kept,
       EXISTS (SELECT FROM created) AS created
FROM old_job AS o

-- name: set_user_role
-- Until the end of the transaction, read as the role that sees only this user's rows. The settings are
-- local to the transaction, so they end with it, committed or not.
--
-- $1 organisation   $2 user
SELECT set_config('role', 'coatcheck_user', true),
       set_config('coatcheck.org', $1, true),
       set_config('coatcheck.user', $2, true)

-- name: submit
-- Create a job together with its generation and its webhook receivers, in one statement, so that none
-- exists without the others. If the job is not created, because its key or its id is taken, nothing is
-- written.
--
-- $1-$12 as in jobs/submit, one job   $13 generation   $14 user   $15 voice   $16 language
-- $17 text   $18 description   $19 the job of the clone that speaks the text
WITH created AS (
    /* include coatcheck.core:jobs/submit */
),
spoken AS (
    INSERT INTO generations (
        org_id, id, user_id, job_id, voice_id, language, text, description, clone_id
    )
    SELECT ($1::text[])[1], $13::uuid, $14::text, c.id, $15::uuid, $16::text, $17::text, $18::text,
           $19::uuid
    FROM created AS c
),
bound AS (
    /* include coatcheck.core:webhooks/add_job_webhooks */
),
named AS (
    /* include coatcheck.core:webhooks/submitted_targets */
),
enlisted AS (
    /* include coatcheck.core:webhooks/target_upsert */
)
SELECT c.id, c.staged FROM created AS c

-- name: task
-- A user's task, by its generation. Read under coatcheck_user.
--
-- $1 organisation   $2 user   $3 characters of the text   $4 generation
SELECT /* include task_columns */
FROM /* include task_joins */
WHERE g.org_id = $1 AND g.user_id = $2 AND g.id = $4

-- name: task_columns
-- A task's generation, its file and its job: included by task, tasks and changes, in the order
-- in which queries.py reads them. $3 cuts the text.
g.id AS generation_id, g.voice_id, g.language, left(g.text, $3::integer) AS said,
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
--
-- $1 organisation   $2 user   $3 characters of each text   $4 older than this generation
-- $5 states, or NULL   $6 endpoints: those of the requested types   $7 limit
SELECT /* include task_columns */
FROM /* include task_joins */
WHERE g.org_id = $1 AND g.user_id = $2 AND g.id < $4::uuid
  AND ($5::text[] IS NULL OR j.state = ANY ($5::text[]::job_state[]))
  AND j.endpoint = ANY ($6::text[])
ORDER BY g.id DESC
LIMIT $7

-- name: voice
-- A user's voice, if its upload is complete. Read under coatcheck_user.
--
-- $1 organisation   $2 user   $3 voice
SELECT /* include voice_columns */
FROM voices AS v
WHERE v.org_id = $1 AND v.user_id = $2 AND v.id = $3
  AND v.ready_at IS NOT NULL AND v.deleted_at IS NULL

-- name: voice_columns
-- The columns of a voice, in the order of StoredVoice.
v.id, v.blob_key, v.created_at, v.bytes, v.sha256, v.duration_seconds

-- name: voices
-- A page of a user's voices, newest first. Read under coatcheck_user.
--
-- $1 organisation   $2 user   $3 older than this voice   $4 limit
SELECT /* include voice_columns */
FROM voices AS v
WHERE v.org_id = $1 AND v.user_id = $2 AND v.id < $3::uuid
  AND v.ready_at IS NOT NULL AND v.deleted_at IS NULL
ORDER BY v.id DESC
LIMIT $4

-- name: voices_to_remove
-- Voices whose blobs are due for removal: deleted ones, and uploads that took too long. The latter are
-- marked as deleted first, so that a process which still uploads gets an error. Uses the index
-- voices_to_remove.
--
-- $1 seconds that an upload may take   $2 limit
UPDATE voices AS v
SET deleted_at = coalesce(v.deleted_at, now())
FROM (
    SELECT o.org_id, o.id
    FROM voices AS o
    WHERE (o.ready_at IS NULL OR o.deleted_at IS NOT NULL)
      AND coalesce(o.deleted_at, o.created_at)
          <= now() - CASE WHEN o.deleted_at IS NULL THEN $1::double precision ELSE 0 END
                     * interval '1 second'
      AND coalesce(o.deleted_at, o.created_at) <= now()
    ORDER BY coalesce(o.deleted_at, o.created_at)
    LIMIT $2
    FOR UPDATE SKIP LOCKED
) AS due
WHERE v.org_id = due.org_id AND v.id = due.id
RETURNING v.org_id, v.id, v.blob_key
