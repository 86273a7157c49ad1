-- Those of these blobs that belong to an export that has not expired.
SELECT e.blob_key
FROM unnest($1::uuid[], $2::text[]) AS b (id, blob_key)
JOIN batch_exports AS e ON e.id = b.id AND e.blob_key = b.blob_key
WHERE e.expires_at IS NULL OR e.expires_at > now()
