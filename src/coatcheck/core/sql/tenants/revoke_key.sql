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
