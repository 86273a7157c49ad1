-- How many jobs wait and run, by lane. Reads the partial indexes of live states, never the history.
SELECT lane::text AS lane, state::text AS state, count(*) AS jobs
FROM (
    SELECT lane, state FROM jobs WHERE state = 'queued'
    UNION ALL
    SELECT lane, state FROM jobs WHERE state IN ('staged', 'retrying')
    UNION ALL
    SELECT lane, state FROM jobs WHERE lease IS NOT NULL
) AS live
GROUP BY lane, state
