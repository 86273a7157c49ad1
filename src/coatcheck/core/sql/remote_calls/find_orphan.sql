-- One orphaned job. $1 org   $2 job
/* include remote_calls/orphan_columns.sql */
  AND j.org_id = $1 AND j.id = $2
