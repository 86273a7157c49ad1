-- Attach a stored blob to its job as an artifact, fenced by the lease. Attaching the same name again
-- replaces the old artifact and opens its record; returns the replaced blob, to be deleted. No row: the
-- lease is lost, and the caller deletes its blob.
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id, j.owner, j.endpoint, CASE WHEN j.run_id IS NULL THEN j.flow ELSE '' END AS flow
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.id = $2 AND j.lease = $3
    FOR SHARE
),
gone AS MATERIALIZED (
    SELECT a.*, h.owner, h.endpoint, h.flow, NULL::timestamptz AS deleted_at, 'replaced' AS mechanism
    FROM artifacts AS a JOIN held AS h ON a.org_id = h.org_id AND a.job_id = h.id
    WHERE a.name = $4 AND a.blob_key <> $5
),
added AS (
    INSERT INTO artifacts (org_id, job_id, name, blob_key, media_type, bytes, sha256)
    SELECT h.org_id, h.id, $4, $5, $6, $7, $8 FROM held AS h
    ON CONFLICT (org_id, job_id, name) DO UPDATE
    SET blob_key = excluded.blob_key, media_type = excluded.media_type, bytes = excluded.bytes,
        sha256 = excluded.sha256, created_at = now()
    RETURNING org_id
),
replaced AS (
    /* include artifacts/open_records.sql */
)
SELECT r.org_id, r.job_id, r.seq, r.blob_key FROM added LEFT JOIN replaced AS r ON true
