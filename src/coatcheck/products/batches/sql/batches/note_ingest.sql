-- Which job takes a part in.
UPDATE batch_parts SET ingest_job = $3, updated_at = now() WHERE org_id = $1 AND id = $2
