-- Calls that nobody checks, and whose job has ended some other way or was deleted: their leftovers are
-- deleted, and then they are. They may hold secrets.
--
-- $1 rows at most
SELECT c.org_id, c.job_id, c.endpoint, c.destination, coalesce(j.owner, '') AS owner,
       coalesce(j.state = 'completed', false) AS is_completed
FROM remote_calls AS c
LEFT JOIN jobs AS j ON j.org_id = c.org_id AND j.id = c.job_id
WHERE c.lease IS NULL AND (j.state IS NULL OR j.state IN ('completed', 'failed', 'cancelled'))
ORDER BY c.org_id, c.job_id
LIMIT $1::integer
