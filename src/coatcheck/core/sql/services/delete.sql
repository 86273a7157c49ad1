-- Delete an organisation's service; accepted jobs go on. Its secrets are retired, and deleted after
-- those jobs.
--
-- $1 organisation, $2 name, $3 workspace or NULL for any   $4 channel, $5 payload of the notification
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
