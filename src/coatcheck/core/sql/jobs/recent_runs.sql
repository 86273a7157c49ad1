-- How long the last completed jobs of a kind ran: of a service and an owner, newest first, those of the
-- endpoint among the first $6. Walks jobs_ended, which has the newest at its end.
--
-- $1 org   $2 service   $3 owner   $4 endpoint   $5 flow, or NULL for any   $6 rows to look at
SELECT date_part('epoch', r.finished_at - r.started_at) AS seconds
FROM (SELECT $2::text AS service, hashtextextended($2::text || $1, 0) AS service_hash) AS wanted
CROSS JOIN LATERAL (
    SELECT j.endpoint, j.flow, j.started_at, j.finished_at
    FROM jobs AS j
    WHERE /* include jobs/of_service.sql */
      AND hashtext(j.owner) = hashtext($3::text) AND j.owner = $3 AND j.state = 'completed'
    ORDER BY j.id DESC
    LIMIT $6::integer
) AS r
WHERE r.endpoint = $4 AND ($5::text IS NULL OR r.flow = $5) AND r.started_at IS NOT NULL
