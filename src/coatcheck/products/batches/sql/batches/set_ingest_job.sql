-- Record the job that ingests a part.
UPDATE batch_parts SET ingest_job = $3, updated_at = now() WHERE org_id = $1 AND id = $2
