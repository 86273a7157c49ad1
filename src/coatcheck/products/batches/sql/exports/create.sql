-- Create an export and the job that writes it, in one statement. If the batch is being removed, no
-- export is written; its job finds none, and ends. Sent again after its response was lost, the
-- statement does nothing.
--
-- $1-$12 as in jobs/submit.sql, one job   $13 export   $14 batch   $15 run   $16 whether of all runs
WITH created AS (
    /* include coatcheck.core:jobs/submit.sql */
)
INSERT INTO batch_exports (org_id, id, batch_id, run_id, export_job, all_runs)
SELECT b.org_id, $13::uuid, b.id, $15::uuid, c.id, $16::boolean
FROM created AS c
JOIN batches AS b ON b.org_id = ($1::text[])[1] AND b.id = $14::uuid AND b.deleted_at IS NULL
RETURNING id
