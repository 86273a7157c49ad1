-- Every published definition, for each endpoint the one in force first, with the live workers that
-- publish it: for people, and for a worker that starts.
WITH live AS MATERIALIZED (
    SELECT d.digest, array_agg(w.name ORDER BY w.boot DESC) AS names,
           array_agg(w.boot ORDER BY w.boot DESC) AS boots
    FROM workers AS w
    CROSS JOIN LATERAL unnest(w.publishes) AS d (digest)
    WHERE /* include workers/is_live.sql */
    GROUP BY d.digest
)
SELECT p.definition::text AS definition, p.published_at, p.unserved_since,
       coalesce(l.names, '{}') AS names, coalesce(l.boots, '{}') AS boots
FROM published_endpoints AS p
LEFT JOIN live AS l ON l.digest = p.digest
WHERE p.org_id = ''
ORDER BY p.service_id, p.version, p.key,
         CASE WHEN l.digest IS NULL THEN coalesce(p.unserved_since, now()) END DESC NULLS FIRST,
         p.published_at DESC, p.digest
