-- An organisation's parts whose ingest failed, newest first: of one owner, or of all.
--
-- $1 org   $2 owner, or NULL   $3 older than this id   $4 how many
SELECT p.id, p.batch_id, p.run_id, p.source, p.error_code, p.error_message, p.lines, p.tasks,
       p.redrives, p.created_at, p.updated_at AS failed_at
FROM batch_parts AS p
JOIN batches AS b ON b.org_id = p.org_id AND b.id = p.batch_id AND b.deleted_at IS NULL
WHERE p.org_id = $1 AND p.state = 'failed' AND p.id < $3 AND ($2::text IS NULL OR b.owner = $2)
ORDER BY p.id DESC
LIMIT $4
