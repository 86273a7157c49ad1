-- How many jobs are staged or wait for a retry, by lane and state, up to a bound: of all organisations.
--
-- $1 rows at most
SELECT p.lane::text AS lane, p.state::text AS state, count(*) AS jobs
FROM (
    SELECT j.lane, j.state
    FROM jobs AS j
    WHERE j.state IN ('staged', 'retrying')
    ORDER BY j.run_at
    LIMIT $1::integer
) AS p
GROUP BY p.lane, p.state
