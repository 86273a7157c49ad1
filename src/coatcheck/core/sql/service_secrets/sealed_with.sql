-- Secrets that one key has sealed, by the index service_secrets_key, to seal them anew after a rotation.
-- In pages, so that one that cannot be opened does not hide the others.
--
-- $1 key id   $2, $3 organisation and id to start after   $4 rows at most
SELECT s.org_id, s.id, s.sealed
FROM service_secrets AS s
WHERE s.key_id = $1 AND (s.org_id, s.id) > ($2::text, $3::uuid)
ORDER BY s.org_id, s.id
LIMIT $4::integer
