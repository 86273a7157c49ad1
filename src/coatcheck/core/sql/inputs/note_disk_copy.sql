-- Record that the job's holder is about to copy its input to a disk. Fenced: without the lease, no row
-- and no download. Safe to repeat after a lost answer. The copy may live as long as its blob: returns
-- for how many seconds that is.
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
