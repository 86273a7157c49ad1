-- An organisation's keys, newest first, older than $2; revoked ones, too.
SELECT k.org_id, k.key_id, k.user_id, k.name, k.scopes, k.rate_requests, k.rate_seconds,
       k.created_at, k.expires_at, k.revoked_at
FROM api_keys AS k
WHERE k.org_id = $1 AND ($2::text IS NULL OR k.key_id < $2)
ORDER BY k.key_id DESC
LIMIT $3
