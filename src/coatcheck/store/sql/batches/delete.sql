-- A batch is gone for its readers, and its key is free. Upkeep removes what is left of it.
UPDATE batches
SET deleted_at = now(), updated_at = now(), idempotency_key = NULL
WHERE org_id = $1 AND id = $2 AND deleted_at IS NULL
