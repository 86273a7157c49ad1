-- Seconds until the next call is due, or NULL: the earliest of each organisation's.
WITH RECURSIVE seen AS (
    (
        SELECT c.org_id, c.due_at, 1 AS nth
        FROM remote_calls AS c
        WHERE c.due_at IS NOT NULL
        ORDER BY c.org_id, c.due_at
        LIMIT 1
    )
    UNION ALL
    SELECT n.org_id, n.due_at, s.nth + 1
    FROM seen AS s
    CROSS JOIN LATERAL (
        SELECT c.org_id, c.due_at
        FROM remote_calls AS c
        WHERE c.due_at IS NOT NULL AND c.org_id > s.org_id
        ORDER BY c.org_id, c.due_at
        LIMIT 1
    ) AS n
    WHERE s.nth < 1000
)
SELECT extract(epoch FROM min(s.due_at) - clock_timestamp())::double precision AS seconds
FROM seen AS s
