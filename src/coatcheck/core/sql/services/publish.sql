-- Publish what a worker's code declares, in the transaction that registers it. A known definition keeps
-- its age: a worker that starts with the code of running ones makes nothing newer. New ones count as
-- unserved until mark_served.sql has run, which then sees the change.
--
-- $1 boot   $2 definitions of endpoints as JSON   $3 the position of each in its service
WITH given AS MATERIALIZED (
    SELECT g.definition::jsonb AS definition, g.position
    FROM unnest($2::text[], $3::integer[]) AS g (definition, position)
),
published AS (
    INSERT INTO published_endpoints
        (service_id, version, key, definition, position, published_at, unserved_since)
    SELECT g.definition ->> 'service', (g.definition ->> 'version')::integer, g.definition ->> 'key',
           g.definition, g.position, statement_timestamp(), statement_timestamp()
    FROM given AS g
    ON CONFLICT (org_id, service_id, version, key, digest) DO NOTHING
)
UPDATE workers
SET publishes = array(SELECT md5(g.definition::text) FROM given AS g)
WHERE boot = $1::bigint
