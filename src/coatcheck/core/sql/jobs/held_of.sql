-- How many jobs of some endpoints are at work. Reads what is held by anybody, which is as much as there
-- are slots.
--
-- $1 endpoints
SELECT count(*) AS jobs
FROM jobs AS j
WHERE j.lease IS NOT NULL AND j.endpoint = ANY ($1::text[])
