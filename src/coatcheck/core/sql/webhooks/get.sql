-- One delivery.   $1 org   $2 id
SELECT /* include webhooks/view_columns.sql */
FROM webhook_deliveries AS d
LEFT JOIN webhook_targets AS t ON t.org_id = d.org_id AND t.id = d.target_id
WHERE d.org_id = $1 AND d.id = $2
