-- The services that code declares: an engine takes the endpoints' defaults from them.
SELECT s.org_id, s.service_id, s.workspace_id, s.source,
       s.definition::text AS definition, s.created_at, s.updated_at
FROM services AS s
WHERE s.org_id = ''
