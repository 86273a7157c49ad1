-- The secret of an endpoint, as secret.sql returns that of an organisation.
--
-- $1 org   $2 id   $3 seconds that the previous one stays valid after a rotation
SELECT t.generation, t.rotated_at + $3::double precision * interval '1 second' AS previous_until,
       t.rotated_at + $3::double precision * interval '1 second' > now() AS previous_signs
FROM webhook_targets AS t
WHERE t.org_id = $1 AND t.id = $2 AND t.events IS NOT NULL
