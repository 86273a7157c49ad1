-- Set an organisation's limits, and notify every cache with the commit.
--
-- $1 id, $2 and $3 its rate, $4 its backlog's limit, $5 the channel,
-- $6 the longest timeout of its services, in seconds
WITH changed AS (
    UPDATE orgs SET rate_requests = $2, rate_seconds = $3, backlog_max = $4, timeout_max = $6
    WHERE org_id = $1
    RETURNING org_id, name, subscription, rate_requests, rate_seconds, backlog_max, timeout_max,
              created_at
)
SELECT c.*, pg_notify($5, 'org:' || c.org_id) FROM changed AS c
