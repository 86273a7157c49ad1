-- A fragment for statements that delete rows of artifacts: writes a record for each row of `gone`. If
-- the blob is already deleted, the row has the time of that; the other records are closed when their
-- blob is deleted.
--
-- `gone` has no flow for a run's task: it may end in a word of the payload, which is deleted with its
-- group, and a record is kept for longer.
INSERT INTO artifact_records (
    org_id, job_id, name, owner, endpoint, flow, media_type, bytes, sha256, blob_key, stored_at,
    deleted_at, mechanism
)
SELECT g.org_id, g.job_id, g.name, g.owner, g.endpoint, g.flow, g.media_type, g.bytes, g.sha256,
       g.blob_key, g.created_at, g.deleted_at, g.mechanism
FROM gone AS g
RETURNING org_id, job_id, seq, blob_key
