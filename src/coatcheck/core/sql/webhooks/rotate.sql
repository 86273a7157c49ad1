-- Give an organisation its next secret, if its current one is still $2: repeated after a lost answer, or
-- sent by two at once, it changes the secret once.
--
-- $1 org   $2 the current generation
INSERT INTO webhook_secrets AS k (org_id, generation, rotated_at)
VALUES ($1, $2::integer + 1, now())
ON CONFLICT (org_id) DO UPDATE
SET generation = excluded.generation, rotated_at = now()
WHERE k.generation = $2::integer
