-- An organisation takes its service away; jobs that were accepted go on. Its secrets are retired, and
-- removed after those jobs.
--
-- $1 organisation, $2 name, $3 workspace or NULL for any   $4 channel, $5 what to say on it
WITH deleted AS (
    DELETE FROM services
    WHERE org_id = $1 AND service_id = $2 AND ($3::text IS NULL OR workspace_id = $3)
      AND source = 'http'
    RETURNING service_id
),
retired AS (
    UPDATE service_secrets AS s
    SET retired_at = now()
    FROM deleted AS d
    WHERE s.org_id = $1 AND s.service_id = d.service_id AND s.retired_at IS NULL
)
SELECT d.service_id, pg_notify($4::text, $5::text) FROM deleted AS d
