-- How many jobs are staged or wait for a retry, by lane and state, up to a bound: of one organisation.
--
-- $1 org   $2 rows at most
SELECT p.lane::text AS lane, p.state::text AS state, count(*) AS jobs
FROM (
    SELECT j.lane, j.state
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.state IN ('staged', 'retrying')
    LIMIT $2::integer
) AS p
GROUP BY p.lane, p.state
