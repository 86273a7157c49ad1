-- tell.sql from `moved`, which gives what `changed` does there. Included by the statements that take
-- jobs, start them, put them into the queue, or ask them to stop; those that end jobs as well put both
-- into `moved`, because one INSERT costs less than two.
INSERT INTO webhook_deliveries (
        org_id, target_id, subject_kind, subject_id, run_id, event, facts
    )
    SELECT c.org_id, told.target_id, told.kind, c.id, c.run_id, told.event,
           jsonb_strip_nulls(jsonb_build_object(
               'state', c.state, 'previous', c.previous, 'attempt', c.attempts,
               'error_code', c.error_code, 'endpoint', c.endpoint,
               'flow', CASE WHEN c.run_id IS NULL THEN c.flow END, 'as', told.told_as
           ))
    FROM moved AS c
    CROSS JOIN LATERAL (
        /* include webhooks/told.sql */
    ) AS told
    WHERE c.webhook > 0
       OR (SELECT EXISTS (SELECT FROM webhook_targets AS known WHERE known.events IS NOT NULL))
