-- Forget the endpoints of a service that no live worker publishes: of one version or one endpoint, if they
-- are named. What was forgotten; by the primary key.
--
-- $1 service   $2 version, or NULL for all   $3 key of an endpoint, or NULL for all
DELETE FROM published_endpoints AS p
WHERE p.org_id = '' AND p.service_id = $1::text
  AND ($2::integer IS NULL OR p.version = $2) AND ($3::text IS NULL OR p.key = $3)
  AND NOT EXISTS (
      SELECT FROM published_endpoints AS l
      WHERE l.org_id = '' AND l.service_id = p.service_id AND l.version = p.version AND l.key = p.key
        AND l.digest IN (/* include services/served.sql */)
  )
RETURNING p.version, p.key
