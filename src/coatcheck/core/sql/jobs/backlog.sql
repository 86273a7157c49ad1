-- How many jobs of these endpoints an organisation has queued, counted up to $3. Every lane is named,
-- so that jobs_ready is read only where such jobs are.
SELECT count(*)
FROM (
    SELECT
    FROM jobs AS j
    WHERE j.state = 'queued' AND j.lane IN ('urgent', 'standard', 'bulk')
      AND j.endpoint = ANY ($2::text[]) AND j.org_id = $1
    LIMIT $3
) AS waiting
