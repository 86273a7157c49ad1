-- Records whose blob may still be there, although nobody seems to be at it any more. A page begins
-- after the last one of the page before, so that blobs which cannot be deleted just now do not stand
-- in the way of the others.
--
-- $1, $2 time and number of the last one seen   $3 seconds that whoever opened it has   $4 rows at most
SELECT r.org_id, r.job_id, r.seq, r.blob_key, r.deleting_at
FROM artifact_records AS r
WHERE r.deleted_at IS NULL AND (r.deleting_at, r.seq) > ($1::timestamptz, $2::bigint)
  AND r.deleting_at <= now() - $3::double precision * interval '1 second'
ORDER BY r.deleting_at, r.seq
LIMIT $4::integer
