-- Which secret an endpoint has, as secret.sql says it of an organisation.
--
-- $1 org   $2 id   $3 seconds that the one before signs along after a rotation
SELECT t.generation, t.rotated_at + $3::double precision * interval '1 second' AS previous_until,
       t.rotated_at + $3::double precision * interval '1 second' > now() AS previous_signs
FROM webhook_targets AS t
WHERE t.org_id = $1 AND t.id = $2 AND t.events IS NOT NULL
