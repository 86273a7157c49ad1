-- The first push of a process; safe to repeat after a lost answer.
--
-- $1 process   $2 kind   $3 number of the push   $4 samples
INSERT INTO process_metrics (process, kind, push, samples)
VALUES ($1::uuid, $2::text, $3::bigint, $4::bytea)
ON CONFLICT (process) DO UPDATE
SET push = excluded.push, pushed_at = now(), samples = excluded.samples
WHERE process_metrics.samples IS NOT NULL AND process_metrics.push < excluded.push
