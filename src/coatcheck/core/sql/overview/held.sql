-- How many jobs are held, by endpoint and flow, as flows.sql counts what is queued: of one
-- organisation, or of all. As many rows are read as there are jobs at work in the whole deployment.
--
-- $1 org, or '*' for all of them
SELECT j.org_id, j.flow, j.endpoint, j.lane::text AS lane, count(*) AS jobs
FROM jobs AS j
WHERE j.lease IS NOT NULL AND ($1 = '*' OR j.org_id = $1)
GROUP BY j.org_id, j.flow, j.endpoint, j.lane
