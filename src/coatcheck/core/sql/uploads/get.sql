-- An upload of an organisation.
SELECT org_id, id, owner, blob_key, created_at, expires_at, expires_at <= now() AS is_expired,
       used_by
FROM uploads
WHERE org_id = $1 AND id = $2
