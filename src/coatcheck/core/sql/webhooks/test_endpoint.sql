-- Write a test message to an endpoint. Repeated after a lost answer, it is the same message.
--
-- $1 org   $2 endpoint   $3 id of the delivery   $4 event
INSERT INTO webhook_deliveries AS d (
    org_id, id, target_id, subject_kind, subject_id, event, facts
)
SELECT t.org_id, $3::uuid, t.id, 'test', t.id, $4::text, '{"as": "endpoint"}'
FROM webhook_targets AS t
WHERE t.org_id = $1 AND t.id = $2 AND t.events IS NOT NULL
ON CONFLICT (org_id, id) DO UPDATE SET event = d.event
RETURNING d.id
