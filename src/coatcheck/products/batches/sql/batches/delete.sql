-- A batch is gone for its readers, and its key is free. Upkeep removes what is left of it.
WITH deleted AS (
    UPDATE batches
    SET deleted_at = now(), updated_at = now(), idempotency_key = NULL
    WHERE org_id = $1 AND id = $2 AND deleted_at IS NULL
    RETURNING org_id, id
),
hidden AS (
    UPDATE runs AS r
    SET removed_at = now()
    FROM deleted AS d
    WHERE r.org_id = d.org_id AND r.group_id = d.id
)
SELECT d.id FROM deleted AS d
