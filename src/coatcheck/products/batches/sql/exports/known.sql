-- Which of these blobs an export is in whose time is not up.
SELECT e.blob_key
FROM unnest($1::uuid[], $2::text[]) AS b (id, blob_key)
JOIN batch_exports AS e ON e.id = b.id AND e.blob_key = b.blob_key
WHERE e.expires_at IS NULL OR e.expires_at > now()
