-- The services that code declares: what an engine knows the endpoints' defaults from.
SELECT s.org_id, s.service_id, s.workspace_id, s.source,
       s.definition::text AS definition, s.created_at, s.updated_at
FROM services AS s
WHERE s.org_id = ''
