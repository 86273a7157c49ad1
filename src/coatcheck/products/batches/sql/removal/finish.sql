-- Delete a batch of which nothing else is left, with its runs and their limits. Not before the usage of
-- its tasks is summed up, because the sums are recorded under the batch.
--
-- $1 org   $2 batch
WITH settled AS MATERIALIZED (
    SELECT b.org_id, b.id
    FROM batches AS b
    WHERE b.org_id = $1 AND b.id = $2 AND b.deleted_at IS NOT NULL
      AND NOT EXISTS (
          SELECT FROM runs AS r
          JOIN usage_deltas AS d ON d.org_id = r.org_id AND d.run_id = r.id
          WHERE r.org_id = b.org_id AND r.group_id = b.id
      )
    FOR UPDATE
),
ended AS (
    DELETE FROM runs AS r USING settled AS s
    WHERE r.org_id = s.org_id AND r.group_id = s.id
    RETURNING r.org_id, r.id AS run_id
),
/* include coatcheck.core:limits/clear_run.sql */,
batch_gone AS (
    DELETE FROM batches AS b USING settled AS s WHERE b.org_id = s.org_id AND b.id = s.id
    RETURNING b.id
)
SELECT count(*) AS batches FROM batch_gone
