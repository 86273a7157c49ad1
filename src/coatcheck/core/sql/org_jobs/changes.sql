-- An organisation's jobs that changed after one snapshot and up to another, in the order of their ids: a
-- page of a stream of changes. It needs no column, no index and no write: a row names the transaction
-- that wrote it, and a snapshot says of each transaction whether it had committed.
--
-- Looks at the newest $3 jobs, backwards along the primary key; jobs/page_filter.sql says why the ids
-- have bounds. Tasks are left out. If nothing changed, one row has the snapshot.
--
-- $1 org   $2 reader: theirs, and what anyone may read; NULL for all   $3 rows to look at
-- $4, $5 see jobs/horizon.sql   $6 after this id   $7 rows at most
WITH horizon AS MATERIALIZED (
    /* include jobs/horizon.sql */
),
walked AS MATERIALIZED (
    SELECT j.id, j.state, j.owner, /* include jobs/row_transaction.sql */ AS written_by
    FROM jobs AS j, horizon AS h
    WHERE j.org_id = $1 AND j.run_id IS NULL AND j.id >= '01000000-0000-0000-0000-000000000000'
    ORDER BY j.id DESC
    LIMIT $3
),
page AS MATERIALIZED (
    SELECT w.id
    FROM walked AS w, horizon AS h
    WHERE w.id > $6::uuid AND ($2::text IS NULL OR w.owner IN ('*', $2))
      AND /* include jobs/is_changed.sql */
    ORDER BY w.id
    LIMIT $7
)
SELECT h.seen::text AS seen, /* include org_jobs/view_columns.sql */
FROM horizon AS h
LEFT JOIN page AS p ON true
LEFT JOIN LATERAL (SELECT * FROM jobs AS j WHERE j.org_id = $1 AND j.id = p.id) AS j ON true
ORDER BY j.id
