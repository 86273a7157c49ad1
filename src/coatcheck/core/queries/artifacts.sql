-- name: close
-- Record that these blobs are deleted. Not fenced: any process that deleted a blob may record it, and
-- the first record counts.
UPDATE artifact_records AS r
SET deleted_at = now()
FROM unnest(:orgs::text[], :jobs::uuid[], :seqs::bigint[]) AS gone (org_id, job_id, seq)
WHERE r.org_id = gone.org_id AND r.job_id = gone.job_id AND r.seq = gone.seq AND r.deleted_at IS NULL

-- name: delete
-- Delete an artifact of a job that has ended, on request, and open its record. Returns the blob to
-- delete. No row: there is no such artifact, or the job has not ended and may attach another of the
-- same name.
WITH ended AS MATERIALIZED (
    SELECT j.org_id, j.id, j.owner, j.endpoint, CASE WHEN j.run_id IS NULL THEN j.flow ELSE '' END AS flow
    FROM jobs AS j
    WHERE j.org_id = :org AND j.id = :job AND j.finished_at IS NOT NULL
    FOR SHARE
),
gone AS (
    DELETE FROM artifacts AS a USING ended AS e
    WHERE a.org_id = e.org_id AND a.job_id = e.id AND a.name = :name
    RETURNING a.*, e.owner, e.endpoint, e.flow, NULL::timestamptz AS deleted_at, 'owner' AS mechanism
)
/* include artifacts/open_records */

-- name: open_records
-- A fragment for statements that delete rows of artifacts: writes a record for each row of `gone`. If
-- the blob is already deleted, the row has the time of that; the other records are closed when their
-- blob is deleted.
--
-- `gone` has no flow for a run's task: it may end in a word of the payload, which is deleted with its
-- group, and a record is kept for longer.
INSERT INTO artifact_records (
    org_id, job_id, name, owner, endpoint, flow, media_type, bytes, sha256, blob_key, stored_at,
    deleted_at, mechanism
)
SELECT g.org_id, g.job_id, g.name, g.owner, g.endpoint, g.flow, g.media_type, g.bytes, g.sha256,
       g.blob_key, g.created_at, g.deleted_at, g.mechanism
FROM gone AS g
RETURNING org_id, job_id, seq, blob_key

-- name: prune_records
-- Delete records of artifacts that were kept long enough. Only closed ones: the others may have a blob
-- left, which nothing else would delete.
--
-- :keep_seconds  seconds to keep a record
WITH old AS MATERIALIZED (
    SELECT r.org_id, r.job_id, r.seq
    FROM artifact_records AS r
    WHERE r.deleted_at <= now() - :keep_seconds::double precision * interval '1 second'
    ORDER BY r.deleted_at
    LIMIT :rows_max::integer
    FOR UPDATE SKIP LOCKED
)
DELETE FROM artifact_records AS r USING old AS o
WHERE r.org_id = o.org_id AND r.job_id = o.job_id AND r.seq = o.seq
RETURNING r.seq

-- name: record
-- The record of the artifact of a name: a row for each blob that was ever stored for it. Deleted ones
-- come first, the existing one last. read_at is the clock's time and not now(): a deletion since this
-- transaction began is visible, and a receipt is not dated before it.
SELECT a.org_id, a.job_id, a.name, j.owner, j.endpoint,
       CASE WHEN j.run_id IS NULL THEN j.flow ELSE '' END AS flow, a.media_type, a.bytes, a.sha256,
       clock_timestamp() AS read_at, a.created_at AS stored_at, NULL::timestamptz AS deleted_at,
       NULL::text AS mechanism, NULL::bigint AS seq
FROM artifacts AS a
JOIN jobs AS j ON j.org_id = a.org_id AND j.id = a.job_id
WHERE a.org_id = :org AND a.job_id = :job AND a.name = :name
UNION ALL
SELECT r.org_id, r.job_id, r.name, r.owner, r.endpoint, r.flow, r.media_type, r.bytes, r.sha256,
       clock_timestamp(), r.stored_at, r.deleted_at, CASE WHEN r.deleted_at IS NOT NULL THEN r.mechanism END, r.seq
FROM artifact_records AS r
WHERE r.org_id = :org AND r.job_id = :job AND r.name = :name
ORDER BY seq NULLS LAST

-- name: undeleted_blobs
-- Records whose blob may still exist although its deleter has had enough time. A page begins after the
-- last row of the previous one, so that blobs that cannot be deleted now do not block the others.
--
-- :after_seq  time and number of the last one seen   :grace_seconds  seconds that a deleter has
SELECT r.org_id, r.job_id, r.seq, r.blob_key, r.deleting_at
FROM artifact_records AS r
WHERE r.deleted_at IS NULL AND (r.deleting_at, r.seq) > (:after_at::timestamptz, :after_seq::bigint)
  AND r.deleting_at <= now() - :grace_seconds::double precision * interval '1 second'
ORDER BY r.deleting_at, r.seq
LIMIT :rows_max::integer
