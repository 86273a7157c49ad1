-- Extend the leases of posts in flight. Fenced by the lease, as webhooks/mark.sql.
--
-- $1-$3 org, id, lease   $4 seconds that the lease lasts from now on
UPDATE webhook_deliveries AS d
SET due_at = now() + $4::double precision * interval '1 second'
FROM unnest($1::text[], $2::uuid[], $3::uuid[]) AS h (org_id, id, lease)
WHERE d.org_id = h.org_id AND d.id = h.id AND d.lease = h.lease
RETURNING d.id
