-- A page of the services that an organisation can call, its own and those that code declares, by name;
-- of one workspace, if it is given. No definition is read: what the list shows are columns
-- (core/schema/0004_catalogue.sql).
--
-- $1 organisation   $2 workspace, or NULL for all   $3 after this name   $4 rows at most
SELECT s.org_id, s.service_id, s.workspace_id, s.source, s.version_numbers::text AS version_numbers,
       s.endpoint_counts::text AS endpoint_counts, s.created_at, s.updated_at
FROM (
    SELECT DISTINCT ON (service_id)
           org_id, service_id, workspace_id, source, version_numbers, endpoint_counts, created_at,
           updated_at
    FROM services
    WHERE org_id IN ($1, '') AND service_id > $3::text
    ORDER BY service_id, org_id DESC
) AS s
WHERE $2::text IS NULL OR s.workspace_id = $2
ORDER BY s.service_id
LIMIT $4
