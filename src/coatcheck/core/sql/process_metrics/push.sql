-- Replace the samples of a process. Not if it was folded meanwhile: then there is no row, and adding to
-- it would count everything twice. Not if a later push overtook this one.
--
-- $1 process   $2 number of the push   $3 samples   $4 whether it is the last
UPDATE process_metrics AS m
SET push = $2::bigint, pushed_at = now(), samples = $3::bytea, ended = $4::boolean
WHERE m.process = $1::uuid AND m.samples IS NOT NULL AND m.push < $2::bigint
RETURNING m.push
