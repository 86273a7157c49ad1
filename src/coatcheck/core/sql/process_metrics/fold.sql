-- Fold processes: add their counts to the row of ended ones, in the transaction that has locked both, so
-- that nothing is counted twice or lost. Deletes rows that were folded long ago.
--
-- $1 the counts of all ended processes   $2 the processes   $3 seconds to remember those for
WITH folded AS (
    UPDATE process_metrics AS m
    SET samples = NULL, pushed_at = now()
    WHERE m.process = ANY ($2::uuid[])
),
forgotten AS (
    DELETE FROM process_metrics AS m
    WHERE m.samples IS NULL AND m.pushed_at < now() - $3::double precision * interval '1 second'
)
UPDATE process_metrics AS m
SET samples = $1::bytea, pushed_at = now(), push = m.push + 1
WHERE m.kind = 'gone'
