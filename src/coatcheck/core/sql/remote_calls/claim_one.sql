-- Claim the call of one job, unless another process checks it, or has within the last moment. After an
-- invalid answer, the time until the next check binds everybody: a caller who asks five times a second
-- must not use up a remote's faults, nor ignore its Retry-After. With a moment of 0 neither applies:
-- for a cancellation, and for a callback.
--
-- $1 org   $2 job   $3 seconds that the claim lasts   $4 seconds of that moment   $5 the claimant
WITH locked AS MATERIALIZED (
    SELECT c.org_id, c.job_id
    FROM remote_calls AS c
    WHERE c.org_id = $1 AND c.job_id = $2 AND c.lease IS NOT NULL
      AND (c.looker IS NULL OR c.due_at <= now())
      AND coalesce(c.looked_at, c.spawned_at) <= now() - $4::double precision * interval '1 second'
      AND ($4::double precision = 0 OR c.faults = 0 OR c.due_at <= now())
    FOR UPDATE SKIP LOCKED
),
taken AS (
    UPDATE remote_calls AS c
    SET looker = $5::uuid, due_at = now() + $3::double precision * interval '1 second',
        polls = c.polls + 1
    FROM locked AS l
    WHERE c.org_id = l.org_id AND c.job_id = l.job_id
    RETURNING c.*
)
/* include remote_calls/claimed_columns.sql */
