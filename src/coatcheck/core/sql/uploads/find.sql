-- The upload that a signed URL is for. The URL names no organisation; whoever signed it knew it.
SELECT org_id, id, owner, blob_key, created_at, expires_at, expires_at <= now() AS is_expired,
       used_by
FROM uploads
WHERE id = $1
