-- Create an upload, before its URL is given out. Safe to repeat after a lost answer.
INSERT INTO uploads AS u (org_id, id, owner, blob_key, expires_at)
VALUES ($1, $2, $3, $4, now() + make_interval(secs => $5))
ON CONFLICT (org_id, id) DO UPDATE SET expires_at = u.expires_at
RETURNING org_id, id, owner, blob_key, created_at, expires_at, false AS is_expired, used_by
