-- The record of a job's input, a row for each copy. The pointer was removed when the job ended, whether
-- or not its row has been closed since.
--
-- read_at is the clock's time and not now(): a deletion since this transaction began is visible, and a
-- receipt is not dated before it.
SELECT i.org_id, i.job_id, i.owner, i.endpoint, i.sha256, i.bytes, i.received_at,
       clock_timestamp() AS read_at, c.layer, c.place, c.stored_at, c.expires_at,
       coalesce(c.deleted_at, CASE WHEN c.layer = 'database' THEN ended.at END) AS deleted_at,
       coalesce(
           c.mechanism, CASE WHEN c.layer = 'database' AND ended.at IS NOT NULL THEN 'end_of_job' END
       ) AS mechanism
FROM job_inputs AS i
JOIN input_copies AS c ON c.org_id = i.org_id AND c.job_id = i.job_id
LEFT JOIN jobs AS j ON j.org_id = i.org_id AND j.id = i.job_id
CROSS JOIN LATERAL (
    SELECT CASE WHEN j.id IS NULL THEN now() ELSE j.finished_at END AS at
) AS ended
WHERE i.org_id = $1 AND i.job_id = $2
ORDER BY c.layer, c.stored_at, c.place
