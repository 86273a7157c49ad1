-- The holder of a job is about to put its input on a disk. Fenced: no lease, no row, no download.
-- Sent again after its answer was lost, it answers the same. The copy may live as long as the blob
-- that it is made of: answers for how many seconds that is.
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id FROM jobs AS j
    WHERE j.org_id = $1 AND j.id = $2 AND j.lease = $3
    FOR SHARE
)
INSERT INTO input_copies AS c (org_id, job_id, layer, place, expires_at)
SELECT h.org_id, h.id, 'disk', $4::text, b.expires_at
FROM held AS h
JOIN input_copies AS b ON b.org_id = h.org_id AND b.job_id = h.id AND b.layer = 'blob'
ON CONFLICT (org_id, job_id, layer, place) DO UPDATE SET place = excluded.place
RETURNING extract(epoch FROM c.expires_at - now())::double precision AS seconds
