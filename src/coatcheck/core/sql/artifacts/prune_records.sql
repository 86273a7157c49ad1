-- Delete records of artifacts that were kept long enough. Only closed ones: the others may have a blob
-- left, which nothing else would delete.
--
-- $1 seconds to keep a record   $2 rows at most
WITH old AS MATERIALIZED (
    SELECT r.org_id, r.job_id, r.seq
    FROM artifact_records AS r
    WHERE r.deleted_at <= now() - $1::double precision * interval '1 second'
    ORDER BY r.deleted_at
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
)
DELETE FROM artifact_records AS r USING old AS o
WHERE r.org_id = o.org_id AND r.job_id = o.job_id AND r.seq = o.seq
RETURNING r.seq
