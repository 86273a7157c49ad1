-- pending -> completed, when the blob is complete. Fenced by the lease of the job that wrote it. Sent
-- again after its response was lost, it returns the same row. No row: the lease is lost, or the batch
-- was deleted; the caller then deletes the blob. An export expires with its batch at the latest.
--
-- $1 org   $2 export   $3 job   $4 lease   $5 blob key   $6 bytes   $7 sha256   $8 tasks
-- $9 seconds to keep
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id FROM jobs AS j
    WHERE j.org_id = $1 AND j.id = $3 AND j.lease = $4
    FOR SHARE
)
UPDATE batch_exports AS e
SET state = 'completed', blob_key = $5, bytes = $6, sha256 = $7, tasks_written = $8,
    completed_at = now(),
    expires_at = least(now() + $9::integer * interval '1 second', b.expires_at)
FROM held AS h, batches AS b
WHERE e.org_id = $1 AND e.id = $2 AND h.id = e.export_job
  AND (e.state = 'pending' OR e.blob_key = $5)
  AND b.org_id = e.org_id AND b.id = e.batch_id AND b.deleted_at IS NULL
RETURNING e.id
