-- write_deliveries_from_changed.sql from `moved`, which has the columns of `changed` there. Included by
-- the statements that claim jobs, start them, queue them, or request their cancellation; those that end
-- jobs as well put both into `moved`, because one INSERT costs less than two.
INSERT INTO webhook_deliveries (
        org_id, target_id, subject_kind, subject_id, run_id, event, facts
    )
    SELECT c.org_id, notified.target_id, notified.kind, c.id, c.run_id, notified.event,
           jsonb_strip_nulls(jsonb_build_object(
               'state', c.state, 'previous', c.previous, 'attempt', c.attempts,
               'error_code', c.error_code, 'endpoint', c.endpoint,
               'flow', CASE WHEN c.run_id IS NULL THEN c.flow END, 'as', notified.sent_as
           ))
    FROM moved AS c
    CROSS JOIN LATERAL (
        /* include webhooks/receivers.sql */
    ) AS notified
    WHERE c.webhook > 0
       OR (SELECT EXISTS (SELECT FROM webhook_targets AS known WHERE known.events IS NOT NULL))
