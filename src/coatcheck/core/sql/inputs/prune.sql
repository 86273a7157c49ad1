-- Delete records of inputs that were kept long enough, with the rows of their copies. Not while a blob
-- is left, or nothing would delete it.
WITH old AS MATERIALIZED (
    SELECT i.org_id, i.job_id
    FROM job_inputs AS i
    WHERE i.forget_at <= now()
      AND NOT EXISTS (
          SELECT FROM input_copies AS c
          WHERE c.org_id = i.org_id AND c.job_id = i.job_id AND c.layer = 'blob'
            AND c.deleted_at IS NULL
      )
    ORDER BY i.forget_at
    LIMIT $1::integer
    FOR UPDATE SKIP LOCKED
),
copies_gone AS (
    DELETE FROM input_copies AS c USING old AS o WHERE c.org_id = o.org_id AND c.job_id = o.job_id
),
inputs_gone AS (
    DELETE FROM job_inputs AS i USING old AS o WHERE i.org_id = o.org_id AND i.job_id = o.job_id
    RETURNING i.job_id
)
SELECT count(*) AS inputs FROM inputs_gone
