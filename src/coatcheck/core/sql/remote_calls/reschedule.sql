-- Check calls again later, if the claimant still has them. At their deadline at the latest. Locked in
-- the order of their keys, like the statement that cancels a run's tasks, which may meet it.
--
-- $1-$5 org, job, the claimant, seconds until the next check, invalid answers in a row
WITH mine AS MATERIALIZED (
    SELECT c.org_id, c.job_id, s.seconds, s.faults,
           (
               SELECT j.run_deadline
               FROM jobs AS j
               WHERE j.org_id = c.org_id AND j.id = c.job_id AND j.run_deadline > now()
           ) AS run_deadline
    FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::double precision[], $5::smallint[])
        AS s (org_id, job_id, looker, seconds, faults)
    JOIN remote_calls AS c ON c.org_id = s.org_id AND c.job_id = s.job_id AND c.looker = s.looker
    WHERE c.lease IS NOT NULL
    ORDER BY c.org_id, c.job_id
    FOR UPDATE OF c
)
UPDATE remote_calls AS c
SET looker = NULL, looked_at = now(), faults = m.faults,
    due_at = least(now() + m.seconds * interval '1 second', m.run_deadline)
FROM mine AS m
WHERE c.org_id = m.org_id AND c.job_id = m.job_id
RETURNING c.job_id
