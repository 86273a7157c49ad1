-- The endpoints of a service that are published, or recently were; by primary key.
--
-- $1 service   $2 version, or NULL for all   $3 key of an endpoint, or NULL for all
SELECT DISTINCT p.version, p.key
FROM published_endpoints AS p
WHERE p.org_id = '' AND p.service_id = $1::text
  AND ($2::integer IS NULL OR p.version = $2) AND ($3::text IS NULL OR p.key = $3)
ORDER BY p.version, p.key
