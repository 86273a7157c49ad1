-- Give an organisation its next secret, if it still has the one that it had: sent again after its
-- answer was lost, or by two at once, it changes it once.
--
-- $1 org   $2 the generation that was
INSERT INTO webhook_secrets AS k (org_id, generation, rotated_at)
VALUES ($1, $2::integer + 1, now())
ON CONFLICT (org_id) DO UPDATE
SET generation = excluded.generation, rotated_at = now()
WHERE k.generation = $2::integer
