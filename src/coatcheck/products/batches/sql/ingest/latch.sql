-- Set a run's total, absolutely, and let it complete from now on: once it takes no more tasks and
-- every part of it was taken in. A repeat changes nothing.
--
-- On its own after whatever made a part done or closed the run: both lock the run, so whoever comes
-- second sees here what the first has done.
--
-- $1 org   $2 run
UPDATE runs AS r
SET total = r.tasks, latched_at = now()
WHERE r.org_id = $1 AND r.id = $2 AND r.closed_at IS NOT NULL AND r.latched_at IS NULL
  AND NOT EXISTS (
      SELECT
      FROM batch_parts AS p
      WHERE p.org_id = r.org_id AND p.run_id = r.id AND p.state <> 'done'
  )
RETURNING r.group_id AS batch_id
