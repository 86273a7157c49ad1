-- The invalid lines of a run's lists: the lists in their order, and the lines in theirs.
--
-- $1 org   $2 run   $3, $4 after this list's position and this line   $5 how many
SELECT p.position, bad.line, bad.code, bad.message
FROM batch_parts AS p
CROSS JOIN LATERAL (
    SELECT l.line, l.code, l.message
    FROM batch_bad_lines AS l
    WHERE l.org_id = p.org_id AND l.part_id = p.id
      AND l.line > CASE WHEN p.position = $3::integer THEN $4::bigint ELSE 0 END
    ORDER BY l.line
    LIMIT $5::integer
) AS bad
WHERE p.org_id = $1 AND p.run_id = $2 AND p.position >= $3 AND p.bad_lines > 0
ORDER BY p.position, bad.line
LIMIT $5
