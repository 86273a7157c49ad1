-- One key of an organisation.
SELECT k.org_id, k.key_id, k.user_id, k.name, k.scopes, k.rate_requests, k.rate_seconds,
       k.created_at, k.expires_at, k.revoked_at
FROM api_keys AS k
WHERE k.org_id = $1 AND k.key_id = $2
