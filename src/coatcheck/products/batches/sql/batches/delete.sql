-- Mark a batch as deleted: callers cannot read it any more, and its idempotency key is free.
-- Maintenance removes its data.
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
