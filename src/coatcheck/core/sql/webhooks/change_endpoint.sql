-- Change the given fields of an endpoint. One that answered 410 is enabled again. A new URL starts
-- without failures, and without the old one's Retry-After.
--
-- $1 org   $2 id   $3 url   $4 events   $5 description; each NULL to leave it
UPDATE webhook_targets AS t
SET url = coalesce($3::text, t.url), events = coalesce($4::text[], t.events),
    description = coalesce($5::text, t.description), disabled_at = NULL,
    failures = CASE WHEN t.url <> $3 OR t.disabled_at IS NOT NULL THEN 0 ELSE t.failures END,
    not_before = CASE WHEN t.url <> $3 THEN NULL ELSE t.not_before END
WHERE t.org_id = $1 AND t.id = $2 AND t.events IS NOT NULL
RETURNING /* include webhooks/endpoint_columns.sql */
