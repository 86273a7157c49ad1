-- A page of an organisation's jobs, newest first: read backwards along the primary key until it is
-- full. Results are left out: a page of them could have any size.
--
-- $1-$6 see page_filter.sql   $7 older than this id   $8 rows to skip   $9 rows at most
SELECT /* include jobs/view_columns.sql */, NULL::bytea AS result
FROM jobs AS j
WHERE /* include jobs/page_filter.sql */
  AND j.id < $7::uuid
ORDER BY j.id DESC
OFFSET $8
LIMIT $9
