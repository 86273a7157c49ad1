-- The definition of each endpoint that is in force: the newest that a live worker publishes; if none
-- does, the one that was published last. Included by resolve.sql and declare_limits.sql; by primary key.
--
-- $1 services
SELECT DISTINCT ON (p.service_id, p.version, p.key)
       p.service_id, p.version, p.key, p.definition, p.position, p.published_at, p.unserved_since
FROM published_endpoints AS p
WHERE p.org_id = '' AND p.service_id = ANY ($1::text[])
ORDER BY p.service_id, p.version, p.key,
         p.unserved_since DESC NULLS FIRST, p.published_at DESC, p.digest
