-- Whether the statement numbered $3, whose answer was lost, took effect. It wrote all its rows or none.
SELECT EXISTS (
    SELECT FROM job_events WHERE org_id = $1 AND job_id = $2 AND write_id = $3
)
