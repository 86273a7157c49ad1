-- Delete expired reports, oldest first, a chunk at a time. Walks usage_reports_old.
--
-- $1 days that they are kept   $2 rows at most
WITH old AS MATERIALIZED (
    SELECT r.org_id, r.id
    FROM usage_reports AS r
    WHERE r.created_at < now() - $1::integer * interval '1 day'
    ORDER BY r.created_at
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM usage_reports AS r USING old AS o
    WHERE r.org_id = o.org_id AND r.id = o.id
    RETURNING 1
)
SELECT count(*) AS rows FROM gone
