-- How many jobs an organisation has queued, tasks included, counted up to $2.
--
-- A loose scan of jobs_ready finds the endpoints that have queued jobs, with one probe each; of those
-- it reads the organisation's own entries and no others. So it costs what it counts, however long the
-- history or other queues are, and no caller has to know the endpoints.
WITH RECURSIVE lines AS (
    (
        SELECT j.lane, j.endpoint
        FROM jobs AS j
        WHERE j.state = 'queued'
        ORDER BY j.lane, j.endpoint
        LIMIT 1
    )
    UNION ALL
    SELECT next.lane, next.endpoint
    FROM lines AS l
    CROSS JOIN LATERAL (
        SELECT j.lane, j.endpoint
        FROM jobs AS j
        WHERE j.state = 'queued' AND (j.lane, j.endpoint) > (l.lane, l.endpoint)
        ORDER BY j.lane, j.endpoint
        LIMIT 1
    ) AS next
)
SELECT count(*)
FROM (
    SELECT
    FROM lines AS l
    CROSS JOIN LATERAL (
        SELECT
        FROM jobs AS j
        WHERE j.state = 'queued' AND j.lane = l.lane AND j.endpoint = l.endpoint AND j.org_id = $1
        LIMIT $2
    ) AS own
    LIMIT $2
) AS waiting
