-- Replace a sealed text by one that was sealed anew, unless the service was registered with other
-- secrets meanwhile.
--
-- $1 organisations, $2 ids   $3 texts as they were read, $4 texts sealed anew
UPDATE service_secrets AS s
SET sealed = g.anew, sealed_at = now()
FROM unnest($1::text[], $2::uuid[], $3::text[], $4::text[]) AS g (org_id, id, before, anew)
WHERE s.org_id = g.org_id AND s.id = g.id AND s.sealed = g.before
RETURNING s.id
