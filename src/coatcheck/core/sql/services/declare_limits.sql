-- Set the concurrency limits of some services' endpoints to those of the definitions in force
-- (chosen.sql). Limits set by hand are left alone (limits/set.sql).
--
-- $1 services
WITH chosen AS (
    /* include services/chosen.sql */
),
declared AS MATERIALIZED (
    SELECT c.service_id || CASE c.version WHEN 1 THEN '' ELSE '.v' || c.version END || '.' || c.key
               AS name,
           (c.definition ->> 'concurrency')::integer AS held_max
    FROM chosen AS c
),
withdrawn AS (
    DELETE FROM concurrency_limits AS l
    WHERE l.org_id = '*' AND l.scope = 'endpoint' AND l.declared
      AND split_part(l.name, '.', 1) = ANY ($1::text[])
      AND NOT EXISTS (
          SELECT FROM declared AS d WHERE d.name = l.name AND d.held_max IS NOT NULL
      )
)
INSERT INTO concurrency_limits AS l (org_id, scope, name, held_max, declared)
SELECT '*', 'endpoint', d.name, d.held_max, true FROM declared AS d WHERE d.held_max IS NOT NULL
ON CONFLICT (org_id, scope, name) DO UPDATE
SET held_max = excluded.held_max
WHERE l.declared AND l.held_max <> excluded.held_max
