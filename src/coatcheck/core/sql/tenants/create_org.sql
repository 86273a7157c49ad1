-- Create an organisation with its first workspace. No row if the id is taken.
--
-- $1 id, $2 name, $3 workspace, $4 and $5 its rate, $6 its backlog's limit,
-- $7 the longest timeout of its services, in seconds
WITH created AS (
    INSERT INTO orgs (org_id, name, rate_requests, rate_seconds, backlog_max, timeout_max)
    VALUES ($1, $2, $4, $5, $6, $7)
    ON CONFLICT (org_id) DO NOTHING
    RETURNING org_id, name, subscription, rate_requests, rate_seconds, backlog_max, timeout_max,
              created_at
),
workspace AS (
    INSERT INTO workspaces (org_id, workspace_id)
    SELECT c.org_id, $3 FROM created AS c
    ON CONFLICT (org_id, workspace_id) DO NOTHING
)
SELECT * FROM created
