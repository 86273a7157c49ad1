-- The facts of the previous delivery to this target about this subject, if there was one.
--
-- $1 org   $2 subject   $3 target   $4 id of a delivery
SELECT d.facts::text AS facts
FROM webhook_deliveries AS d
WHERE d.org_id = $1 AND d.subject_id = $2 AND d.target_id = $3 AND d.id < $4
ORDER BY d.id DESC
LIMIT 1
