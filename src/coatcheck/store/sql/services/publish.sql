-- A worker says what its code declares. Version by version: one that serves only version 2 leaves
-- version 1 as it is, and of a version the newest publisher's endpoints count, all of them.
--
-- Writes only what differs, so a fleet that restarts tells nobody anything. In the order of their
-- names, so that two workers that publish the same services do not wait for each other crosswise.
--
-- $1 services, $2 version of each, $3 its endpoints as JSON   $4 workspace   $5 channel
WITH published AS (
    INSERT INTO services AS s (org_id, service_id, workspace_id, source, definition)
    SELECT '', p.service_id, $4::text, 'code',
           jsonb_build_object('versions', jsonb_object_agg(
               p.version::text, jsonb_build_object('endpoints', p.endpoints::jsonb)
           ))
    FROM unnest($1::text[], $2::integer[], $3::text[]) AS p (service_id, version, endpoints)
    GROUP BY p.service_id
    ORDER BY p.service_id
    ON CONFLICT (org_id, service_id) DO UPDATE
    SET definition = jsonb_build_object(
            'versions', (s.definition -> 'versions') || (excluded.definition -> 'versions')
        ),
        updated_at = now()
    WHERE s.definition -> 'versions'
       <> (s.definition -> 'versions') || (excluded.definition -> 'versions')
    RETURNING service_id
)
SELECT p.service_id, pg_notify($5::text, '/' || p.service_id) FROM published AS p
