-- Exports of a batch that is being removed.
SELECT e.org_id, e.id, e.blob_key
FROM batch_exports AS e
WHERE e.org_id = $1 AND e.batch_id = $2
ORDER BY e.id
LIMIT $3
