-- Organisations by id, for every caller that arrived while the last lookup was in flight.
SELECT o.org_id, o.name, o.subscription, o.rate_requests, o.rate_seconds, o.backlog_max,
       o.timeout_max, o.created_at
FROM unnest($1::text[]) AS wanted (org_id)
JOIN orgs AS o ON o.org_id = wanted.org_id
