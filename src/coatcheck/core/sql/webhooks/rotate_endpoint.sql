-- Give an endpoint its next secret, if its current one is still $3, as rotate.sql does.
--
-- $1 org   $2 id   $3 the current generation
UPDATE webhook_targets
SET generation = generation + 1, rotated_at = now()
WHERE org_id = $1 AND id = $2 AND events IS NOT NULL AND generation = $3::integer
