-- A place for a file, before its URL is given to anybody. Sent again after its answer was lost, it
-- answers the same.
INSERT INTO uploads AS u (org_id, id, owner, blob_key, expires_at)
VALUES ($1, $2, $3, $4, now() + make_interval(secs => $5))
ON CONFLICT (org_id, id) DO UPDATE SET expires_at = u.expires_at
RETURNING org_id, id, owner, blob_key, created_at, expires_at, false AS is_expired, used_by
