-- Register an endpoint, after lock_endpoints.sql; no row if the organisation already has $7. Safe to
-- repeat after a lost answer.
--
-- $1 org   $2 id   $3 url   $4 events   $5 description   $6 whether it is pulled   $7 endpoints at most
INSERT INTO webhook_targets AS t (org_id, id, url, events, description, pulled)
SELECT $1, $2::uuid, $3::text, $4::text[], $5::text, $6::boolean
WHERE (
    SELECT count(*)
    FROM webhook_targets AS known
    WHERE known.org_id = $1 AND known.events IS NOT NULL AND known.id <> $2
) < $7::integer
ON CONFLICT (org_id, id) DO UPDATE SET used_at = now()
RETURNING /* include webhooks/endpoint_columns.sql */
