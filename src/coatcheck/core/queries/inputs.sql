-- name: close_pointers
-- Close the rows of pointers whose job ended after its blob was deleted: its time to live ended while
-- it ran. The other pointers are closed with their blob (mark_deleted).
WITH ended AS MATERIALIZED (
    SELECT c.org_id, c.job_id, c.layer, c.place, coalesce(j.finished_at, now()) AS at
    FROM input_copies AS c
    LEFT JOIN jobs AS j ON j.org_id = c.org_id AND j.id = c.job_id
    WHERE c.layer = 'database' AND c.deleted_at IS NULL
      AND (j.id IS NULL OR j.finished_at IS NOT NULL)
    LIMIT :rows_max::integer
)
UPDATE input_copies AS c
SET deleted_at = e.at, mechanism = 'end_of_job'
FROM ended AS e
WHERE c.org_id = e.org_id AND c.job_id = e.job_id AND c.layer = e.layer AND c.place = e.place
  AND c.deleted_at IS NULL
RETURNING c.job_id

-- name: disk_copies_deleted
-- Record that copies on disks are deleted. Not fenced: any process that removed a folder may record it,
-- and the first record counts.
UPDATE input_copies AS c
SET deleted_at = now(), mechanism = :mechanism::text
FROM unnest(:orgs::text[], :jobs::uuid[], :places::text[]) AS gone (org_id, job_id, place)
WHERE c.org_id = gone.org_id AND c.job_id = gone.job_id AND c.layer = 'disk'
  AND c.place = gone.place AND c.deleted_at IS NULL

-- name: due
-- The blobs to delete: their job has ended or was deleted, or their time to live has ended. Those that
-- expire first come first. A page begins after the last row of the previous one, so that blobs that
-- cannot be deleted now do not block the others.
--
-- :after_job  expiry, organisation and job of the last one seen
SELECT c.org_id, c.job_id, c.place, c.expires_at,
       CASE WHEN j.id IS NULL OR j.finished_at IS NOT NULL THEN 'upkeep' ELSE 'ttl' END AS mechanism
FROM input_copies AS c
LEFT JOIN jobs AS j ON j.org_id = c.org_id AND j.id = c.job_id
WHERE c.layer = 'blob' AND c.deleted_at IS NULL
  AND (c.expires_at, c.org_id, c.job_id) > (:after_at::timestamptz, :after_org::text COLLATE "C", :after_job::uuid)
  AND (j.id IS NULL OR j.finished_at IS NOT NULL OR c.expires_at <= now())
ORDER BY c.expires_at, c.org_id, c.job_id
LIMIT :rows_max::integer

-- name: known
-- Which of these inputs a record still refers to. The pieces of the others are orphans.
SELECT c.place
FROM unnest(:jobs::uuid[], :blob_keys::text[]) AS b (job_id, place)
JOIN input_copies AS c ON c.job_id = b.job_id AND c.place = b.place
WHERE c.layer = 'blob' AND c.deleted_at IS NULL

-- name: mark_deleted
-- Record that blobs are deleted, and by what. With the blob of an ended job its pointer's row is
-- closed: the statement that ended the job removed the pointer itself. Returns the jobs of closed rows.
WITH gone AS MATERIALIZED (
    SELECT g.org_id, g.job_id, g.place, g.mechanism, j.id IS NULL AS job_gone, j.finished_at
    FROM unnest(:orgs::text[], :jobs::uuid[], :places::text[], :mechanisms::text[])
        AS g (org_id, job_id, place, mechanism)
    LEFT JOIN jobs AS j ON j.org_id = g.org_id AND j.id = g.job_id
),
blobs AS (
    UPDATE input_copies AS c
    SET deleted_at = now(), mechanism = g.mechanism
    FROM gone AS g
    WHERE c.org_id = g.org_id AND c.job_id = g.job_id AND c.layer = 'blob' AND c.place = g.place
      AND c.deleted_at IS NULL
    RETURNING c.job_id
),
pointers AS (
    UPDATE input_copies AS c
    SET deleted_at = coalesce(g.finished_at, now()), mechanism = 'end_of_job'
    FROM gone AS g
    WHERE c.org_id = g.org_id AND c.job_id = g.job_id AND c.layer = 'database'
      AND c.deleted_at IS NULL AND (g.job_gone OR g.finished_at IS NOT NULL)
)
SELECT b.job_id FROM blobs AS b

-- name: note_disk_copy
-- Record that the job's holder is about to copy its input to a disk. Fenced: without the lease, no row
-- and no download. Safe to repeat after a lost answer. The copy may live as long as its blob: returns
-- for how many seconds that is.
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id FROM jobs AS j
    WHERE j.org_id = :org AND j.id = :job AND j.lease = :lease
    FOR SHARE
)
INSERT INTO input_copies AS c (org_id, job_id, layer, place, expires_at)
SELECT h.org_id, h.id, 'disk', :place::text, b.expires_at
FROM held AS h
JOIN input_copies AS b ON b.org_id = h.org_id AND b.job_id = h.id AND b.layer = 'blob'
ON CONFLICT (org_id, job_id, layer, place) DO UPDATE SET place = excluded.place
RETURNING extract(epoch FROM c.expires_at - now())::double precision AS seconds

-- name: open_blobs
-- The blobs of these jobs' inputs that are not deleted yet.
SELECT c.org_id, c.job_id, c.place
FROM unnest(:orgs::text[], :jobs::uuid[]) AS ended (org_id, job_id)
JOIN input_copies AS c ON c.org_id = ended.org_id AND c.job_id = ended.job_id
WHERE c.layer = 'blob' AND c.deleted_at IS NULL

-- name: open_disk_copies
-- The copies on one machine's disks that are not recorded as deleted. :prefix its name and a slash
SELECT c.org_id, c.job_id, c.place
FROM input_copies AS c
WHERE c.layer = 'disk' AND c.deleted_at IS NULL AND starts_with(c.place, :prefix::text)

-- name: prune
-- Delete records of inputs that were kept long enough, with the rows of their copies. Not while a blob
-- is left, or nothing would delete it.
WITH old AS MATERIALIZED (
    SELECT i.org_id, i.job_id
    FROM job_inputs AS i
    WHERE i.forget_at <= now()
      AND NOT EXISTS (
          SELECT FROM input_copies AS c
          WHERE c.org_id = i.org_id AND c.job_id = i.job_id AND c.layer = 'blob'
            AND c.deleted_at IS NULL
      )
    ORDER BY i.forget_at
    LIMIT :rows_max::integer
    FOR UPDATE SKIP LOCKED
),
copies_gone AS (
    DELETE FROM input_copies AS c USING old AS o WHERE c.org_id = o.org_id AND c.job_id = o.job_id
),
inputs_gone AS (
    DELETE FROM job_inputs AS i USING old AS o WHERE i.org_id = o.org_id AND i.job_id = o.job_id
    RETURNING i.job_id
)
SELECT count(*) AS inputs FROM inputs_gone

-- name: record
-- The record of a job's input, a row for each copy. The pointer was removed when the job ended, whether
-- or not its row has been closed since.
--
-- read_at is the clock's time and not now(): a deletion since this transaction began is visible, and a
-- receipt is not dated before it.
SELECT i.org_id, i.job_id, i.owner, i.endpoint, i.sha256, i.bytes, i.received_at,
       clock_timestamp() AS read_at, c.layer, c.place, c.stored_at, c.expires_at,
       coalesce(c.deleted_at, CASE WHEN c.layer = 'database' THEN ended.at END) AS deleted_at,
       coalesce(
           c.mechanism, CASE WHEN c.layer = 'database' AND ended.at IS NOT NULL THEN 'end_of_job' END
       ) AS mechanism
FROM job_inputs AS i
JOIN input_copies AS c ON c.org_id = i.org_id AND c.job_id = i.job_id
LEFT JOIN jobs AS j ON j.org_id = i.org_id AND j.id = i.job_id
CROSS JOIN LATERAL (
    SELECT CASE WHEN j.id IS NULL THEN now() ELSE j.finished_at END AS at
) AS ended
WHERE i.org_id = :org AND i.job_id = :job
ORDER BY c.layer, c.stored_at, c.place

-- name: submit
-- Create a job together with the record of its input and its webhooks: one statement, so that there is
-- never one without the others. If the job is not created because its key or its id is taken, nothing
-- is written, and the caller deletes its blob.
--
-- The pointer to the blob is in the job's payload, and is deleted with it.
--
-- :age_seconds  seconds since the blob was stored   :life_seconds  seconds it may live
WITH /* include jobs/created */,
noted AS (
    INSERT INTO job_inputs (
        org_id, job_id, owner, endpoint, sha256, bytes, pieces, blob_key, forget_at
    )
    SELECT (:orgs::text[])[1], c.id, coalesce((:owners::text[])[1], ''), (:endpoints::text[])[1], :sha256::bytea,
           :size::bigint, :pieces::integer, :blob_key::text,
           now() + :keep_seconds::double precision * interval '1 second'
    FROM created AS c
),
copied AS (
    INSERT INTO input_copies (org_id, job_id, layer, place, stored_at, expires_at)
    SELECT (:orgs::text[])[1], c.id, kept.layer, kept.place, kept.stored_at, kept.expires_at
    FROM created AS c
    CROSS JOIN LATERAL (
        SELECT now() - :age_seconds::double precision * interval '1 second' AS at
    ) AS stored
    CROSS JOIN LATERAL (
        VALUES
            ('blob', :blob_key::text, stored.at,
             stored.at + :life_seconds::double precision * interval '1 second'),
            ('database', 'payload', now(), NULL)
    ) AS kept (layer, place, stored_at, expires_at)
),
bound AS (
    /* include webhooks/add_job_webhooks */
),
named AS (
    /* include webhooks/submitted_targets */
),
enlisted AS (
    /* include webhooks/target_upsert */
)
SELECT c.id, c.is_staged AS staged FROM created AS c
