-- An organisation's endpoints, or one of them, oldest first: there are few.   $1 org   $2 id, or NULL
SELECT /* include webhooks/endpoint_columns.sql */
FROM webhook_targets AS t
WHERE t.org_id = $1 AND t.events IS NOT NULL AND ($2::uuid IS NULL OR t.id = $2)
ORDER BY t.id
