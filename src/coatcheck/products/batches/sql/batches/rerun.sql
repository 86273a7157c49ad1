-- Create a new run of a batch, and make it the current one. The transaction has locked the batch.
--
-- $1 org   $2 batch   $3 run   $4 number   $5 parent   $6 selection   $7 whether of all runs
WITH run AS (
    INSERT INTO runs (
        org_id, id, group_id, number, parent_run, selection, closed_at, repeats_all, lane, endpoint,
        service, service_endpoint, usage_flow, webhook_target, secrets_id
    )
    SELECT $1, $3, $2, $4, $5, $6::text::jsonb, now(), $7::boolean, r.lane, r.endpoint, r.service,
           r.service_endpoint, r.usage_flow, r.webhook_target, r.secrets_id
    FROM batches AS b
    JOIN runs AS r ON r.org_id = b.org_id AND r.id = b.current_run
    WHERE b.org_id = $1 AND b.id = $2
)
UPDATE batches
SET current_run = $3, completed_at = NULL, expires_at = NULL, updated_at = now()
WHERE org_id = $1 AND id = $2
