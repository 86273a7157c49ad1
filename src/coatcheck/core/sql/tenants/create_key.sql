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
