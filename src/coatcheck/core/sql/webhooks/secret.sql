-- The secret of an organisation, and until when the previous one is valid, if it is.   $1 org
-- $2 seconds that it is valid after a rotation
SELECT k.generation, k.rotated_at + $2::double precision * interval '1 second' AS previous_until,
       k.rotated_at + $2::double precision * interval '1 second' > now() AS previous_signs
FROM webhook_secrets AS k
WHERE k.org_id = $1
