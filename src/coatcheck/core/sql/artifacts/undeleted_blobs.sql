-- Records whose blob may still exist although its deleter has had enough time. A page begins after the
-- last row of the previous one, so that blobs that cannot be deleted now do not block the others.
--
-- $1, $2 time and number of the last one seen   $3 seconds that a deleter has   $4 rows at most
SELECT r.org_id, r.job_id, r.seq, r.blob_key, r.deleting_at
FROM artifact_records AS r
WHERE r.deleted_at IS NULL AND (r.deleting_at, r.seq) > ($1::timestamptz, $2::bigint)
  AND r.deleting_at <= now() - $3::double precision * interval '1 second'
ORDER BY r.deleting_at, r.seq
LIMIT $4::integer
