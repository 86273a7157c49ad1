-- Orphaned jobs. $1 rows at most
/* include remote_calls/orphan_columns.sql */
LIMIT $1::integer
