-- Set the concurrency limits that code declares for its endpoints, and remove those that it no longer
-- declares. Limits set by hand are left alone.
--
-- $1 endpoints, $2 the limit of each, or NULL for none
WITH declared AS (
    SELECT d.name, d.held_max FROM unnest($1::text[], $2::integer[]) AS d (name, held_max)
),
withdrawn AS (
    DELETE FROM concurrency_limits AS c USING declared AS d
    WHERE c.org_id = '*' AND c.scope = 'endpoint' AND c.name = d.name
      AND c.declared AND d.held_max IS NULL
)
INSERT INTO concurrency_limits (org_id, scope, name, held_max, declared)
SELECT '*', 'endpoint', d.name, d.held_max, true FROM declared AS d WHERE d.held_max IS NOT NULL
ON CONFLICT (org_id, scope, name) DO UPDATE
SET held_max = excluded.held_max WHERE concurrency_limits.declared
