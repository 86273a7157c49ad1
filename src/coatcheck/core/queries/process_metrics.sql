-- name: begin
-- The first push of a process; safe to repeat after a lost answer.
INSERT INTO process_metrics (process, kind, push, samples)
VALUES (:process::uuid, :kind::text, :push::bigint, :samples::bytea)
ON CONFLICT (process) DO UPDATE
SET push = excluded.push, pushed_at = now(), samples = excluded.samples
WHERE process_metrics.samples IS NOT NULL AND process_metrics.push < excluded.push

-- name: fold
-- Fold processes: add their counts to the row of ended ones, in the transaction that has locked both, so
-- that nothing is counted twice or lost. Deletes rows that were folded long ago.
--
-- :whole  the counts of all ended processes   :remember_seconds  seconds to remember those for
WITH folded AS (
    UPDATE process_metrics AS m
    SET samples = NULL, pushed_at = now()
    WHERE m.process = ANY (:processes::uuid[])
),
forgotten AS (
    DELETE FROM process_metrics AS m
    WHERE m.samples IS NULL AND m.pushed_at < now() - :remember_seconds::double precision * interval '1 second'
)
UPDATE process_metrics AS m
SET samples = :whole::bytea, pushed_at = now(), push = m.push + 1
WHERE m.kind = 'gone'

-- name: folded_push
-- The last push of a process that was counted. No row if that was so long ago that it was deleted.
SELECT m.push FROM process_metrics AS m WHERE m.process = :process::uuid

-- name: lock_ended
-- Processes that have ended, or have been silent for so long that they count as ended. One that is
-- pushing right now is left for the next time.
--
-- :silent_seconds  seconds of silence
SELECT m.process, m.samples
FROM process_metrics AS m
WHERE m.samples IS NOT NULL AND m.kind <> 'gone'
  AND (m.ended OR m.pushed_at < now() - :silent_seconds::double precision * interval '1 second')
ORDER BY m.pushed_at
LIMIT :rows_max::integer
FOR UPDATE SKIP LOCKED

-- name: lock_totals
-- The counts of ended processes, locked for adding to: core/schema/0011_telemetry.sql creates the row.
SELECT m.samples FROM process_metrics AS m WHERE m.kind = 'gone' FOR UPDATE

-- name: push once
-- A repeat would find its own number and take the row for one that was folded.
-- Replace the samples of a process. Not if it was folded meanwhile: then there is no row, and adding to
-- it would count everything twice. Not if a later push overtook this one.
--
-- :ended  whether it is the last
UPDATE process_metrics AS m
SET push = :push::bigint, pushed_at = now(), samples = :samples::bytea, ended = :ended::boolean
WHERE m.process = :process::uuid AND m.samples IS NOT NULL AND m.push < :push::bigint
RETURNING m.push

-- name: read
-- The last push of every process, and the counts of ended ones. `alive`: its gauges may still be true.
--
-- :silent_seconds  seconds of silence after which a process does not count as alive
SELECT m.process, m.samples,
       NOT m.ended AND m.pushed_at > now() - :silent_seconds::double precision * interval '1 second' AS alive
FROM process_metrics AS m
WHERE m.samples IS NOT NULL
