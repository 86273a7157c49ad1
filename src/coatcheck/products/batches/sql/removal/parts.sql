-- Parts of a run that is being removed, with the keys of their lists.
--
-- $1 org   $2 run   $3 rows at most
SELECT p.id, p.source, p.source_key, p.upload_id, u.blob_key AS upload_key
FROM batch_parts AS p
LEFT JOIN uploads AS u ON u.org_id = p.org_id AND u.id = p.upload_id
WHERE p.org_id = $1 AND p.run_id = $2
ORDER BY p.position
LIMIT $3
