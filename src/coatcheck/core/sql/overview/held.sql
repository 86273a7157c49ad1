-- How many jobs are held, by endpoint and flow, as flows.sql counts queued ones: of one organisation, or
-- of all. Reads as many rows as there are held jobs in the whole deployment.
--
-- $1 org, or '*' for all of them
SELECT j.org_id, j.flow, j.endpoint, j.lane::text AS lane, count(*) AS jobs
FROM jobs AS j
WHERE j.lease IS NOT NULL AND ($1 = '*' OR j.org_id = $1)
GROUP BY j.org_id, j.flow, j.endpoint, j.lane
