-- $1 rows at most
/* include remote_calls/stray_columns.sql */
LIMIT $1::integer
