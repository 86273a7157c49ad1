-- Everything that writing an export needs, in the order of PendingExport. No row: it was written, or
-- its batch was deleted.
--
-- $1 org   $2 export
SELECT e.id, e.batch_id, e.run_id, b.service, b.service_endpoint, b.endpoint,
       r.number, now() AS begun_at, e.all_runs
FROM batch_exports AS e
JOIN batches AS b ON b.org_id = e.org_id AND b.id = e.batch_id AND b.deleted_at IS NULL
JOIN runs AS r ON r.org_id = e.org_id AND r.id = e.run_id
WHERE e.org_id = $1 AND e.id = $2 AND e.state = 'pending'
