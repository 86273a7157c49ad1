-- Register an organisation's service, or replace its registration. Returns nothing if the name is taken,
-- by code or by another workspace of the organisation; or if it is new, and the organisation is at its
-- limit. Two that register their last one at the same moment may both succeed. Its secrets are written
-- with it; those that it no longer has are retired, for the jobs that were accepted before.
--
-- $1 organisation, $2 workspace, $3 name, $4 definition   $5 channel, $6 payload of the notification
-- $7 ids of its secrets, $8 endpoint of each, $9 sealed text of each
-- $10 how many services the organisation may have
WITH written AS (
    INSERT INTO services AS s (org_id, workspace_id, service_id, source, definition)
    SELECT $1::text, $2::text, $3::text, 'http', $4::text::jsonb
    WHERE NOT EXISTS (SELECT FROM services AS c WHERE c.org_id = '' AND c.service_id = $3::text)
      AND (
          EXISTS (SELECT FROM services AS o WHERE o.org_id = $1::text AND o.service_id = $3::text)
          OR (SELECT count(*) FROM services AS o WHERE o.org_id = $1::text) < $10::integer
      )
    ON CONFLICT (org_id, service_id) DO UPDATE
    SET definition = excluded.definition, updated_at = now()
    WHERE s.workspace_id = excluded.workspace_id
    RETURNING s.org_id, s.service_id, s.workspace_id, s.source,
              s.definition::text AS definition, s.created_at, s.updated_at
),
sealed AS (
    INSERT INTO service_secrets AS s (org_id, id, service_id, endpoint_id, sealed)
    SELECT $1::text, g.id, $3::text, g.endpoint_id, g.sealed
    FROM unnest($7::uuid[], $8::text[], $9::text[]) AS g (id, endpoint_id, sealed)
    WHERE EXISTS (SELECT FROM written)
    ON CONFLICT (org_id, id) DO UPDATE
    SET sealed = excluded.sealed, sealed_at = now(), retired_at = NULL
),
retired AS (
    UPDATE service_secrets AS s
    SET retired_at = now()
    WHERE s.org_id = $1::text AND s.service_id = $3::text AND s.retired_at IS NULL
      AND s.id <> ALL ($7::uuid[]) AND EXISTS (SELECT FROM written)
)
SELECT w.*, pg_notify($5::text, $6::text) FROM written AS w
