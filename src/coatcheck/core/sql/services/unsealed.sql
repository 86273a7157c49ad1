-- Definitions that hold plain secrets, from before a sealing key was set. By the index
-- services_unsealed.
--
-- $1 rows at most
SELECT s.org_id, s.service_id, s.workspace_id, s.source,
       s.definition::text AS definition, s.created_at, s.updated_at
FROM services AS s
WHERE /* include services/is_unsealed.sql */
ORDER BY s.org_id, s.service_id
LIMIT $1::integer
