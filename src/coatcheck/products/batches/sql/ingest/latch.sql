-- Latch a run: set its total, as an absolute number, and let it complete from now on. Only if it is
-- closed and every part of it was ingested. A repeat changes nothing.
--
-- A separate statement, after the one that made a part done or closed the run: both lock the run, so
-- the second of them sees what the first has done.
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
