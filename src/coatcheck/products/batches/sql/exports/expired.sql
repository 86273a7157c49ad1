-- Expired exports. Callers cannot read them any more; maintenance deletes their blobs, then their rows.
SELECT e.org_id, e.id, e.blob_key
FROM batch_exports AS e
WHERE e.expires_at <= now()
ORDER BY e.expires_at
LIMIT $1
