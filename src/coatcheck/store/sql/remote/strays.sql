-- $1 rows at most
/* include remote/stray_columns.sql */
LIMIT $1::integer
