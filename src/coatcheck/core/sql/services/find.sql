-- Services by organisation and name, for every caller that missed the cache while the last read was
-- in flight. An organisation's own service takes precedence over one that code declares.
--
-- $1 organisations, $2 names
SELECT wanted.org_id AS asked_by, s.org_id, s.service_id, s.workspace_id, s.source,
       s.definition::text AS definition, s.created_at, s.updated_at
FROM unnest($1::text[], $2::text[]) AS wanted (org_id, service_id)
CROSS JOIN LATERAL (
    SELECT * FROM services AS s
    WHERE s.org_id IN (wanted.org_id, '') AND s.service_id = wanted.service_id
    ORDER BY s.org_id DESC
    LIMIT 1
) AS s
