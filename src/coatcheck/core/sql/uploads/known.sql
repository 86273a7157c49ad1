-- Which of these staged files are still needed: neither expired nor used, or still to be read. For some
-- minutes longer, because a transaction that used one in time may not have committed yet.
SELECT u.blob_key
FROM unnest($1::uuid[], $2::text[]) AS b (id, blob_key)
JOIN uploads AS u ON u.id = b.id AND u.blob_key = b.blob_key
WHERE (u.used_by IS NULL AND u.expires_at > now() - interval '10 minutes')
   OR (u.used_by IS NOT NULL AND u.released_at IS NULL)
