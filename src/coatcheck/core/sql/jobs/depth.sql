-- How many jobs are queued, postponed and held, by lane and state, and how long the oldest has been due.
-- Reads the partial indexes of live states, never the history.
SELECT lane::text AS lane, state::text AS state, count(*) AS jobs,
       extract(epoch FROM clock_timestamp() - min(run_at))::double precision AS oldest_seconds
FROM (
    SELECT lane, state, run_at FROM jobs WHERE state = 'queued'
    UNION ALL
    SELECT lane, state, run_at FROM jobs WHERE state IN ('staged', 'retrying')
    UNION ALL
    SELECT lane, state, run_at FROM jobs WHERE lease IS NOT NULL
) AS live
GROUP BY lane, state
