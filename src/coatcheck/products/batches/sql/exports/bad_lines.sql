-- The invalid lines of a run's lists, in order: those that are stored of each part.
--
-- $1 org   $2 run   $3 $4 after this part and line   $5 rows at most
SELECT p.position, l.line, l.code, l.message
FROM batch_parts AS p
JOIN batch_bad_lines AS l ON l.org_id = p.org_id AND l.part_id = p.id
WHERE p.org_id = $1 AND p.run_id = $2 AND p.position >= $3::integer
  AND (p.position, l.line) > ($3::integer, $4::bigint)
ORDER BY p.position, l.line
LIMIT $5
