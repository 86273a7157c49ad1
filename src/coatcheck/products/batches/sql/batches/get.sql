-- A batch: one row for each of its runs, oldest first.
SELECT /* include batches/view_columns.sql */,
       /* include batches/run_columns.sql */
FROM batches AS b
JOIN runs AS r ON r.org_id = b.org_id AND r.group_id = b.id
/* include batches/run_joins.sql */
WHERE b.org_id = $1 AND b.id = $2 AND b.deleted_at IS NULL
ORDER BY r.number
