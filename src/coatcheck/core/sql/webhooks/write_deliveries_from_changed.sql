-- The outbox: writes a webhook delivery for each receiver of a state change. Included by the statements
-- that end jobs, or may, from their `changed`, so that the delivery commits with the state change.
--
-- `changed` gives org_id, id, state, previous (the state before), endpoint, flow, attempts, run_id,
-- webhook, error_code. A task's flow is left out: it may end in a word of its payload, which is deleted
-- with its group. Without any webhook this reads `changed`, and probes an empty index once.
INSERT INTO webhook_deliveries (
        org_id, target_id, subject_kind, subject_id, run_id, event, facts
    )
    SELECT c.org_id, notified.target_id, notified.kind, c.id, c.run_id, notified.event,
           jsonb_strip_nulls(jsonb_build_object(
               'state', c.state, 'previous', c.previous, 'attempt', c.attempts,
               'error_code', c.error_code, 'endpoint', c.endpoint,
               'flow', CASE WHEN c.run_id IS NULL THEN c.flow END, 'as', notified.sent_as
           ))
    FROM changed AS c
    CROSS JOIN LATERAL (
        /* include webhooks/receivers.sql */
    ) AS notified
    WHERE c.webhook > 0
       OR (SELECT EXISTS (SELECT FROM webhook_targets AS known WHERE known.events IS NOT NULL))
