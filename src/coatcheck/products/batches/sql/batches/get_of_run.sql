-- The batch of a run, with the columns and rows of get.sql.
SELECT /* include batches/view_columns.sql */,
       /* include batches/run_columns.sql */
FROM runs AS one
JOIN batches AS b ON b.org_id = one.org_id AND b.id = one.group_id
JOIN runs AS r ON r.org_id = b.org_id AND r.group_id = b.id
/* include batches/run_joins.sql */
WHERE one.org_id = $1 AND one.id = $2 AND b.deleted_at IS NULL
ORDER BY r.number
