-- Join the oldest abandoned chat, for one retry of the same caller with the same body. Uses
-- llm_abandoned_digest. Skips a row that another retry is joining: of two retries at once, each gets
-- its own job or none. No row if there is nothing to join.
--
-- $1 organisation   $2 owner   $3 digest   $4 seconds since its caller left at most
WITH free AS MATERIALIZED (
    SELECT a.org_id, a.job_id
    FROM llm_abandoned AS a
    WHERE a.org_id = $1 AND a.digest = $3::bytea AND a.owner = $2
      AND a.left_at > now() - $4::double precision * interval '1 second'
    ORDER BY a.job_id
    LIMIT 1
    FOR UPDATE SKIP LOCKED
),
taken AS (
    DELETE FROM llm_abandoned AS a USING free AS f
    WHERE a.org_id = f.org_id AND a.job_id = f.job_id
    RETURNING a.org_id, a.job_id
)
SELECT j.id, j.state::text AS state
FROM taken AS t
JOIN jobs AS j ON j.org_id = t.org_id AND j.id = t.job_id
