-- The upload of a signed URL. The URL names no organisation; its signature is the permission.
SELECT org_id, id, owner, blob_key, created_at, expires_at, expires_at <= now() AS is_expired,
       used_by
FROM uploads
WHERE id = $1
