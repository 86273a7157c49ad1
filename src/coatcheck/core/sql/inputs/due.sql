-- The blobs to delete: their job has ended or was deleted, or their time to live has ended. Those that
-- expire first come first. A page begins after the last row of the previous one, so that blobs that
-- cannot be deleted now do not block the others.
--
-- $1, $2, $3 expiry, organisation and job of the last one seen   $4 rows at most
SELECT c.org_id, c.job_id, c.place, c.expires_at,
       CASE WHEN j.id IS NULL OR j.finished_at IS NOT NULL THEN 'upkeep' ELSE 'ttl' END AS mechanism
FROM input_copies AS c
LEFT JOIN jobs AS j ON j.org_id = c.org_id AND j.id = c.job_id
WHERE c.layer = 'blob' AND c.deleted_at IS NULL
  AND (c.expires_at, c.org_id, c.job_id) > ($1::timestamptz, $2::text COLLATE "C", $3::uuid)
  AND (j.id IS NULL OR j.finished_at IS NOT NULL OR c.expires_at <= now())
ORDER BY c.expires_at, c.org_id, c.job_id
LIMIT $4::integer
