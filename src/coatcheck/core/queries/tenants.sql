-- name: create_key
-- Create a key, and its user if that is new. No row if there is no such organisation. Safe to repeat
-- after a lost answer: the id is new, so a row that has it is this one.
--
-- :rate_seconds  its rate
WITH org AS (
    SELECT o.org_id FROM orgs AS o WHERE o.org_id = :org
),
member AS (
    INSERT INTO users (org_id, user_id)
    SELECT org.org_id, :user FROM org
    ON CONFLICT (org_id, user_id) DO NOTHING
)
INSERT INTO api_keys AS k
    (org_id, key_id, user_id, name, digest, scopes, rate_requests, rate_seconds, expires_at)
SELECT org.org_id, :key, :user, :name, :digest, :scopes::text[], :rate_requests, :rate_seconds, now() + :seconds_to_live::float8 * interval '1 second'
FROM org
ON CONFLICT (org_id, key_id) DO UPDATE SET key_id = k.key_id
RETURNING k.org_id, k.key_id, k.user_id, k.name, k.scopes, k.rate_requests, k.rate_seconds,
          k.created_at, k.expires_at, k.revoked_at

-- name: create_org once
-- Create an organisation with its first workspace. No row if the id is taken.
--
-- :rate_seconds  its rate   :backlog_max  its backlog's limit
-- :timeout_max  the longest timeout of its services, in seconds
--
-- Once: a repeat after a lost answer would report that the id is taken.
WITH created AS (
    INSERT INTO orgs (org_id, name, rate_requests, rate_seconds, backlog_max, timeout_max)
    VALUES (:org, :name, :rate_requests, :rate_seconds, :backlog_max, :timeout_max)
    ON CONFLICT (org_id) DO NOTHING
    RETURNING org_id, name, subscription, rate_requests, rate_seconds, backlog_max, timeout_max,
              created_at
),
workspace AS (
    INSERT INTO workspaces (org_id, workspace_id)
    SELECT c.org_id, :workspace FROM created AS c
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
FROM unnest(:keys::text[]) AS wanted (key_id)
JOIN api_keys AS k ON k.key_id = wanted.key_id
JOIN orgs AS o ON o.org_id = k.org_id
WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())

-- name: find_orgs
-- Organisations by id, for every caller that arrived while the last lookup was in flight.
SELECT o.org_id, o.name, o.subscription, o.rate_requests, o.rate_seconds, o.backlog_max,
       o.timeout_max, o.created_at
FROM unnest(:orgs::text[]) AS wanted (org_id)
JOIN orgs AS o ON o.org_id = wanted.org_id

-- name: get_key
-- One key of an organisation.
SELECT k.org_id, k.key_id, k.user_id, k.name, k.scopes, k.rate_requests, k.rate_seconds,
       k.created_at, k.expires_at, k.revoked_at
FROM api_keys AS k
WHERE k.org_id = :org AND k.key_id = :key

-- name: limit_org
-- Set an organisation's limits, and notify every cache with the commit.
--
-- :rate_seconds  its rate   :backlog_max  its backlog's limit
-- :timeout_max  the longest timeout of its services, in seconds
WITH changed AS (
    UPDATE orgs SET rate_requests = :rate_requests, rate_seconds = :rate_seconds, backlog_max = :backlog_max, timeout_max = :timeout_max
    WHERE org_id = :org
    RETURNING org_id, name, subscription, rate_requests, rate_seconds, backlog_max, timeout_max,
              created_at
)
SELECT c.*, pg_notify(:channel, 'org:' || c.org_id) FROM changed AS c

-- name: list_keys
-- An organisation's keys, newest first, older than :after; revoked ones, too.
SELECT k.org_id, k.key_id, k.user_id, k.name, k.scopes, k.rate_requests, k.rate_seconds,
       k.created_at, k.expires_at, k.revoked_at
FROM api_keys AS k
WHERE k.org_id = :org AND (:after::text IS NULL OR k.key_id < :after)
ORDER BY k.key_id DESC
LIMIT :limit

-- name: list_orgs
-- Every organisation, for the operator alone.
SELECT org_id, name, subscription, rate_requests, rate_seconds, backlog_max, timeout_max,
       created_at
FROM orgs
ORDER BY org_id

-- name: reset_key
-- Give a key another secret, and make it valid again; notify every cache with the commit.
WITH changed AS (
    UPDATE api_keys SET digest = :digest, revoked_at = NULL
    WHERE org_id = :org AND key_id = :key
    RETURNING key_id
)
SELECT pg_notify(:channel, c.key_id) FROM changed AS c

-- name: revoke_key
-- Revoke a key for good, and notify every replica with the commit: a process that died between the two
-- would leave the key valid in their caches. Revoking again keeps the first time, and notifies again.
WITH revoked AS (
    UPDATE api_keys SET revoked_at = coalesce(revoked_at, now())
    WHERE org_id = :org AND key_id = :key
    RETURNING key_id
)
SELECT pg_notify(:channel, r.key_id) FROM revoked AS r
