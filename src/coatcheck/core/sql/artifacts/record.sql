-- The record of the artifact of a name: a row for each blob that was ever stored for it. Deleted ones
-- come first, the existing one last. read_at is the clock's time and not now(): a deletion since this
-- transaction began is visible, and a receipt is not dated before it.
--
-- $1 org   $2 job   $3 name
SELECT a.org_id, a.job_id, a.name, j.owner, j.endpoint,
       CASE WHEN j.run_id IS NULL THEN j.flow ELSE '' END AS flow, a.media_type, a.bytes, a.sha256,
       clock_timestamp() AS read_at, a.created_at AS stored_at, NULL::timestamptz AS deleted_at,
       NULL::text AS mechanism, NULL::bigint AS seq
FROM artifacts AS a
JOIN jobs AS j ON j.org_id = a.org_id AND j.id = a.job_id
WHERE a.org_id = $1 AND a.job_id = $2 AND a.name = $3
UNION ALL
SELECT r.org_id, r.job_id, r.name, r.owner, r.endpoint, r.flow, r.media_type, r.bytes, r.sha256,
       clock_timestamp(), r.stored_at, r.deleted_at, CASE WHEN r.deleted_at IS NOT NULL THEN r.mechanism END, r.seq
FROM artifact_records AS r
WHERE r.org_id = $1 AND r.job_id = $2 AND r.name = $3
ORDER BY seq NULLS LAST
