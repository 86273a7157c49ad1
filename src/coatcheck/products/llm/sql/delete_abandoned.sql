-- Delete the abandoned chats that no retry may join any more, some at a time. Uses
-- llm_abandoned_left. Not limited to one organisation: only the maintenance loop calls it.
--
-- $1 seconds since their callers left   $2 rows at most
WITH old AS MATERIALIZED (
    SELECT a.org_id, a.job_id
    FROM llm_abandoned AS a
    WHERE a.left_at <= now() - $1::double precision * interval '1 second'
    ORDER BY a.left_at
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
)
DELETE FROM llm_abandoned AS a USING old AS o
WHERE a.org_id = o.org_id AND a.job_id = o.job_id
RETURNING a.job_id
