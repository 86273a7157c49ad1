-- An organisation's deliveries, newest first. Their ids begin with the time of their creation, so that a
-- range of times is a range of ids.
--
-- Sent with custom plans, so that filters which are NULL are not part of the plan.
--
-- $1 org   $2 older than this id, or NULL   $3 of this job or group, or NULL   $4 status, or NULL
-- $5 to this target, or NULL   $6 from this id on, or NULL   $7 rows at most
SELECT /* include webhooks/view_columns.sql */
FROM webhook_deliveries AS d
LEFT JOIN webhook_targets AS t ON t.org_id = d.org_id AND t.id = d.target_id
WHERE d.org_id = $1 AND ($2::uuid IS NULL OR d.id < $2)
  AND ($3::uuid IS NULL OR d.subject_id = $3)
  AND ($4::text IS NULL OR d.status = $4)
  AND ($5::uuid IS NULL OR d.target_id = $5)
  AND ($6::uuid IS NULL OR d.id >= $6)
ORDER BY d.id DESC
LIMIT $7::integer
