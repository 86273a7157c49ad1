-- Which secret an organisation has, and for how many seconds more the one before signs along, if it
-- does.   $1 org   $2 seconds that it does after a rotation
SELECT k.generation, k.rotated_at + $2::double precision * interval '1 second' AS previous_until,
       k.rotated_at + $2::double precision * interval '1 second' > now() AS previous_signs
FROM webhook_secrets AS k
WHERE k.org_id = $1
