-- Give a key another secret, and make it valid again; notify every cache with the commit.
--
-- $1 org, $2 key, $3 digest, $4 the channel
WITH changed AS (
    UPDATE api_keys SET digest = $3, revoked_at = NULL
    WHERE org_id = $1 AND key_id = $2
    RETURNING key_id
)
SELECT pg_notify($4, c.key_id) FROM changed AS c
