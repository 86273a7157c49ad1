-- An organisation's batches, newest first, each with its current run: of one owner, or of all.
--
-- Two ways, of which one is gone: with an OR, one owner's few would be looked for among all there are.
--
-- $1 org   $2 owner, or NULL   $3 older than this id   $4 how many
WITH page AS MATERIALIZED (
    (
        SELECT b.*
        FROM batches AS b
        WHERE b.org_id = $1 AND b.deleted_at IS NULL AND b.id < $3 AND $2::text IS NULL
        ORDER BY b.id DESC
        LIMIT $4
    )
    UNION ALL
    (
        SELECT b.*
        FROM batches AS b
        WHERE b.org_id = $1 AND b.owner = $2 AND b.deleted_at IS NULL AND b.id < $3
        ORDER BY b.id DESC
        LIMIT $4
    )
)
SELECT /* include batches/view_columns.sql */,
       /* include batches/run_columns.sql */
FROM page AS b
JOIN batch_runs AS r ON r.org_id = b.org_id AND r.id = b.current_run
/* include batches/run_joins.sql */
ORDER BY b.id DESC
