-- Put the published definitions of some services into force: their rows in the catalogue become those of
-- chosen.sql, endpoint by endpoint. Where keys differ but the calls would be the same (GET /{id} and
-- GET /{name}), the newer of the two answers, by the same order.
--
-- Writes and notifies only what differs. In the order of the names. A service without endpoints is
-- deleted.
--
-- $1 services   $2 workspace   $3 channel
WITH chosen AS (
    /* include services/chosen.sql */
),
in_force AS MATERIALIZED (
    SELECT DISTINCT ON (c.service_id, c.version, c.definition ->> 'method', shape.path)
           c.service_id, c.version, c.key, c.definition, c.position
    FROM chosen AS c
    CROSS JOIN LATERAL (
        SELECT regexp_replace(c.definition ->> 'path', '\{\w+\}', '{}', 'g') AS path
    ) AS shape
    ORDER BY c.service_id, c.version, c.definition ->> 'method', shape.path,
             c.unserved_since DESC NULLS FIRST, c.published_at DESC, c.key
),
written AS (
    INSERT INTO services AS s (org_id, service_id, workspace_id, source, definition)
    SELECT '', v.service_id, $2::text, 'code',
           jsonb_build_object('versions', jsonb_object_agg(
               v.version::text, jsonb_build_object('endpoints', v.endpoints)
           ))
    FROM (
        SELECT f.service_id, f.version,
               jsonb_agg(f.definition ORDER BY f.position, f.key) AS endpoints
        FROM in_force AS f
        GROUP BY f.service_id, f.version
    ) AS v
    GROUP BY v.service_id
    ORDER BY v.service_id
    ON CONFLICT (org_id, service_id) DO UPDATE
    SET definition = excluded.definition, updated_at = now()
    WHERE s.definition <> excluded.definition
    RETURNING s.service_id
),
removed AS (
    DELETE FROM services AS s
    WHERE s.org_id = '' AND s.service_id = ANY ($1::text[])
      AND NOT EXISTS (SELECT FROM in_force AS f WHERE f.service_id = s.service_id)
    RETURNING s.service_id
)
SELECT c.service_id, pg_notify($3::text, '/' || c.service_id)
FROM (
    SELECT w.service_id FROM written AS w
    UNION ALL
    SELECT r.service_id FROM removed AS r
) AS c
