-- A new run of a batch, which the transaction has locked: the batch goes on.
--
-- $1 org   $2 batch   $3 run   $4 number   $5 parent   $6 selection   $7 whether of all runs
WITH run AS (
    INSERT INTO batch_runs (
        org_id, id, batch_id, number, parent_run, selection, closed_at, repeats_all
    )
    VALUES ($1, $3, $2, $4, $5, $6::text::jsonb, now(), $7::boolean)
)
UPDATE batches
SET current_run = $3, completed_at = NULL, expires_at = NULL, updated_at = now()
WHERE org_id = $1 AND id = $2
