-- The usable ones of these keys, for every caller that arrived while the last lookup was in flight. The
-- database's clock decides which have expired, and how long the others last.
-- Walks api_keys_by_id, then the primary key of orgs.
SELECT k.key_id, k.digest, k.org_id, k.user_id, k.scopes,
       k.rate_requests AS key_requests, k.rate_seconds AS key_seconds,
       o.rate_requests AS org_requests, o.rate_seconds AS org_seconds, o.backlog_max,
       o.timeout_max,
       extract(epoch FROM k.expires_at - now())::float8 AS seconds_left
FROM unnest($1::text[]) AS wanted (key_id)
JOIN api_keys AS k ON k.key_id = wanted.key_id
JOIN orgs AS o ON o.org_id = k.org_id
WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
