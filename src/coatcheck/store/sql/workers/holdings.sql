-- What a worker holds: the job and the lease of each claim of its boot that has not ended.
--
-- $1 boot
SELECT j.id, j.lease FROM jobs AS j WHERE j.lease >> 40 = $1 AND j.lease IS NOT NULL
