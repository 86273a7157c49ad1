-- Take an upload: once, in time, and in the transaction that writes what reads it. From then on it is
-- wanted until that says that it has read it (released_at).
UPDATE uploads
SET used_by = $4
WHERE org_id = $1 AND id = $2 AND owner = $3 AND used_by IS NULL AND expires_at > now()
RETURNING blob_key
