-- Delete parts with their invalid lines and their uploads. Their lists were deleted before.
--
-- $1 org   $2 parts   $3 uploads
WITH parts_gone AS (
    DELETE FROM batch_parts AS p USING unnest($2::uuid[]) AS t (id)
    WHERE p.org_id = $1 AND p.id = t.id
    RETURNING p.id
),
lines_gone AS (
    DELETE FROM batch_bad_lines AS l USING unnest($2::uuid[]) AS t (id)
    WHERE l.org_id = $1 AND l.part_id = t.id
),
uploads_gone AS (
    DELETE FROM uploads AS u USING unnest($3::uuid[]) AS t (id)
    WHERE u.org_id = $1 AND u.id = t.id
)
SELECT count(*) AS parts FROM parts_gone
