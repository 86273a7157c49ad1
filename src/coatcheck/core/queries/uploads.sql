-- name: create
-- Create an upload, before its URL is given out. Safe to repeat after a lost answer.
INSERT INTO uploads AS u (org_id, id, owner, blob_key, expires_at)
VALUES (:org, :upload, :owner, :blob_key, now() + make_interval(secs => :life_seconds))
ON CONFLICT (org_id, id) DO UPDATE SET expires_at = u.expires_at
RETURNING org_id, id, owner, blob_key, created_at, expires_at, false AS is_expired, used_by

-- name: find
-- The upload of a signed URL. The URL names no organisation; its signature is the permission.
SELECT org_id, id, owner, blob_key, created_at, expires_at, expires_at <= now() AS is_expired,
       used_by
FROM uploads
WHERE id = :upload

-- name: get
-- An upload of an organisation.
SELECT org_id, id, owner, blob_key, created_at, expires_at, expires_at <= now() AS is_expired,
       used_by
FROM uploads
WHERE org_id = :org AND id = :upload

-- name: known
-- Which of these staged files are still needed: neither expired nor used, or still to be read. For some
-- minutes longer, because a transaction that used one in time may not have committed yet.
SELECT u.blob_key
FROM unnest(:uploads::uuid[], :blob_keys::text[]) AS b (id, blob_key)
JOIN uploads AS u ON u.id = b.id AND u.blob_key = b.blob_key
WHERE (u.used_by IS NULL AND u.expires_at > now() - interval '10 minutes')
   OR (u.used_by IS NOT NULL AND u.released_at IS NULL)

-- name: prune
-- Delete expired uploads, except those that are still to be read. Some minutes late: a transaction that
-- used one in time may not have committed yet.
WITH old AS MATERIALIZED (
    SELECT u.org_id, u.id
    FROM uploads AS u
    WHERE u.expires_at <= now() - interval '10 minutes'
      AND (u.used_by IS NULL OR u.released_at IS NOT NULL)
    ORDER BY u.expires_at
    LIMIT :rows_max::integer
    FOR UPDATE SKIP LOCKED
)
DELETE FROM uploads AS u USING old AS o WHERE u.org_id = o.org_id AND u.id = o.id
RETURNING u.id

-- name: use
-- Use an upload: once, in time, and in the transaction that writes its reader. From then on it is kept
-- until the reader has read it (released_at).
UPDATE uploads
SET used_by = :used_by
WHERE org_id = :org AND id = :upload AND owner = :owner AND used_by IS NULL AND expires_at > now()
RETURNING blob_key
