-- Take an upload for a batch: once, in time, and in the transaction that writes the part which reads
-- it. Without that part the sweeper would take a used list for one that is done with.
UPDATE batch_uploads
SET batch_id = $4
WHERE org_id = $1 AND id = $2 AND owner = $3 AND batch_id IS NULL AND expires_at > now()
RETURNING blob_key
