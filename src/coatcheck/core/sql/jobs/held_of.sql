-- How many jobs of some endpoints are held. Reads all held jobs of the deployment, which are at most as
-- many as there are slots.
--
-- $1 endpoints
SELECT count(*) AS jobs
FROM jobs AS j
WHERE j.lease IS NOT NULL AND j.endpoint = ANY ($1::text[])
