-- Pending parts that no job ingests: their job was lost, or ended without them.
--
-- Oldest first.   $1 parts at most
SELECT p.org_id, p.id, p.batch_id, p.ingest_job, p.redrives, b.request_id, j.state::text,
       j.error_code, j.error_message
FROM batch_parts AS p
JOIN runs AS r ON r.org_id = p.org_id AND r.id = p.run_id
JOIN batches AS b ON b.org_id = p.org_id AND b.id = p.batch_id
LEFT JOIN jobs AS j ON j.org_id = p.org_id AND j.id = p.ingest_job
WHERE p.state = 'pending' AND r.cancel_requested_at IS NULL AND b.deleted_at IS NULL
  AND (j.id IS NULL OR j.state IN ('completed', 'failed', 'cancelled'))
ORDER BY p.updated_at
LIMIT $1::integer
