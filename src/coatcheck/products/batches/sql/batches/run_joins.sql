-- What the row of a run does not have yet: ended tasks that were not summed up, the number of running
-- tasks, the first failed part, and whether other parts wait for their ingest. A completed run has
-- none of these, and nothing is read for it.
CROSS JOIN LATERAL (
    SELECT coalesce(sum(d.completed), 0)::integer AS succeeded,
           coalesce(sum(d.failed), 0)::integer AS failed,
           coalesce(sum(d.cancelled), 0)::integer AS cancelled
    FROM usage_deltas AS d
    WHERE d.org_id = r.org_id AND d.run_id = r.id AND r.completed_at IS NULL
) AS fresh
CROSS JOIN LATERAL (
    SELECT count(*)::integer AS tasks
    FROM jobs AS j
    WHERE j.org_id = r.org_id AND j.run_id = r.id AND j.run_id IS NOT NULL
      AND j.state IN ('dispatching', 'processing', 'finalizing', 'cancel_requested')
      AND r.completed_at IS NULL
) AS held
LEFT JOIN LATERAL (
    SELECT p.error_code, p.error_message,
           EXISTS (
               SELECT
               FROM batch_parts AS w
               WHERE w.org_id = r.org_id AND w.run_id = r.id AND w.state = 'pending'
                 AND w.state <> 'done'
           ) AS others_wait
    FROM batch_parts AS p
    WHERE p.org_id = r.org_id AND p.run_id = r.id AND p.state = 'failed' AND p.state <> 'done'
      AND r.completed_at IS NULL
    ORDER BY p.position
    LIMIT 1
) AS stuck ON true
