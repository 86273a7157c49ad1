-- The concurrency limits of an organisation, and those on whole endpoints ('*').
SELECT org_id, scope, name, held_max
FROM concurrency_limits
WHERE org_id IN ($1, '*')
ORDER BY org_id, scope, name
