-- Every organisation, for the operator alone.
SELECT org_id, name, subscription, rate_requests, rate_seconds, backlog_max, timeout_max,
       created_at
FROM orgs
ORDER BY org_id
