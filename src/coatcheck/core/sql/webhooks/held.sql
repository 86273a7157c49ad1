-- How often deliveries were tried that a puller still holds.
--
-- $1 org   $2 endpoint   $3 ids   $4 lease of each
SELECT d.id, d.tries
FROM unnest($3::uuid[], $4::uuid[]) AS h (id, lease)
JOIN webhook_deliveries AS d ON d.org_id = $1 AND d.id = h.id AND d.lease = h.lease
WHERE d.target_id = $2
