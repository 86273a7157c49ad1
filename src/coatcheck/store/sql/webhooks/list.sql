-- An organisation's deliveries, newest first.
--
-- Sent with custom plans: what was not asked for is then no part of the plan.
--
-- $1 org   $2 older than this id, or NULL   $3 of this job or batch, or NULL   $4 status, or NULL
-- $5 rows at most
SELECT /* include webhooks/view_columns.sql */
FROM webhook_deliveries AS d
LEFT JOIN webhook_targets AS t ON t.org_id = d.org_id AND t.id = d.target_id
WHERE d.org_id = $1 AND ($2::uuid IS NULL OR d.id < $2)
  AND ($3::uuid IS NULL OR d.subject_id = $3)
  AND ($4::text IS NULL OR d.status = $4)
ORDER BY d.id DESC
LIMIT $5::integer
