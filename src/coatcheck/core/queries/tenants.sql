-- name: create_key
-- Create a key, and its user if that is new. No row if there is no such organisation. Safe to repeat
-- after a lost answer: the id is new, so a row that has it is this one.
--
-- $1 org, $2 key, $3 user, $4 name, $5 digest, $6 scopes, $7 and $8 its rate, $9 seconds to live
WITH org AS (
    SELECT o.org_id FROM orgs AS o WHERE o.org_id = $1
),
member AS (
    INSERT INTO users (org_id, user_id)
    SELECT org.org_id, $3 FROM org
    ON CONFLICT (org_id, user_id) DO NOTHING
)
INSERT INTO api_keys AS k
    (org_id, key_id, user_id, name, digest, scopes, rate_requests, rate_seconds, expires_at)
SELECT org.org_id, $2, $3, $4, $5, $6::text[], $7, $8, now() + $9::float8 * interval '1 second'
FROM org
ON CONFLICT (org_id, key_id) DO UPDATE SET key_id = k.key_id
RETURNING k.org_id, k.key_id, k.user_id, k.name, k.scopes, k.rate_requests, k.rate_seconds,
          k.created_at, k.expires_at, k.revoked_at

-- name: create_org
-- Create an organisation with its first workspace. No row if the id is taken.
--
-- $1 id, $2 name, $3 workspace, $4 and $5 its rate, $6 its backlog's limit,
-- $7 the longest timeout of its services, in seconds
WITH created AS (
    INSERT INTO orgs (org_id, name, rate_requests, rate_seconds, backlog_max, timeout_max)
    VALUES ($1, $2, $4, $5, $6, $7)
    ON CONFLICT (org_id) DO NOTHING
    RETURNING org_id, name, subscription, rate_requests, rate_seconds, backlog_max, timeout_max,
              created_at
),
workspace AS (
    INSERT INTO workspaces (org_id, workspace_id)
    SELECT c.org_id, $3 FROM created AS c
    ON CONFLICT (org_id, workspace_id) DO NOTHING
)
SELECT * FROM created

-- name: find_keys
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

-- name: find_orgs
-- Organisations by id, for every caller that arrived while the last lookup was in flight.
SELECT o.org_id, o.name, o.subscription, o.rate_requests, o.rate_seconds, o.backlog_max,
       o.timeout_max, o.created_at
FROM unnest($1::text[]) AS wanted (org_id)
JOIN orgs AS o ON o.org_id = wanted.org_id

-- name: get_key
-- One key of an organisation.
SELECT k.org_id, k.key_id, k.user_id, k.name, k.scopes, k.rate_requests, k.rate_seconds,
       k.created_at, k.expires_at, k.revoked_at
FROM api_keys AS k
WHERE k.org_id = $1 AND k.key_id = $2

-- name: limit_org
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

-- name: list_keys
-- An organisation's keys, newest first, older than $2; revoked ones, too.
SELECT k.org_id, k.key_id, k.user_id, k.name, k.scopes, k.rate_requests, k.rate_seconds,
       k.created_at, k.expires_at, k.revoked_at
FROM api_keys AS k
WHERE k.org_id = $1 AND ($2::text IS NULL OR k.key_id < $2)
ORDER BY k.key_id DESC
LIMIT $3

-- name: list_orgs
-- Every organisation, for the operator alone.
SELECT org_id, name, subscription, rate_requests, rate_seconds, backlog_max, timeout_max,
       created_at
FROM orgs
ORDER BY org_id

-- name: reset_key
-- Give a key another secret, and make it valid again; notify every cache with the commit.
--
-- $1 org, $2 key, $3 digest, $4 the channel
WITH changed AS (
    UPDATE api_keys SET digest = $3, revoked_at = NULL
    WHERE org_id = $1 AND key_id = $2
    RETURNING key_id
)
SELECT pg_notify($4, c.key_id) FROM changed AS c

-- name: revoke_key
-- Revoke a key for good, and notify every replica with the commit: a process that died between the two
-- would leave the key valid in their caches. Revoking again keeps the first time, and notifies again.
--
-- $1 org, $2 key, $3 the channel
WITH revoked AS (
    UPDATE api_keys SET revoked_at = coalesce(revoked_at, now())
    WHERE org_id = $1 AND key_id = $2
    RETURNING key_id
)
SELECT pg_notify($3, r.key_id) FROM revoked AS r
