-- Use an upload: once, in time, and in the transaction that writes its reader. From then on it is kept
-- until the reader has read it (released_at).
UPDATE uploads
SET used_by = $4
WHERE org_id = $1 AND id = $2 AND owner = $3 AND used_by IS NULL AND expires_at > now()
RETURNING blob_key
