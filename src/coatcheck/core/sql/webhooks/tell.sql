-- The outbox: what this statement did to jobs, for those who are to be told. Included by the
-- statements that end jobs, or may, from their `changed`, so that the row commits with the move that
-- it tells of.
--
-- `changed` gives org_id, id, state, previous (the state before), endpoint, flow, attempts, run_id,
-- webhook, error_code. A task's flow is not told: it may end in a word of its payload, which goes
-- when its group does. Without any webhook this looks at `changed`, and once at an empty index.
INSERT INTO webhook_deliveries (
        org_id, target_id, subject_kind, subject_id, run_id, event, facts
    )
    SELECT c.org_id, told.target_id, told.kind, c.id, c.run_id, told.event,
           jsonb_strip_nulls(jsonb_build_object(
               'state', c.state, 'previous', c.previous, 'attempt', c.attempts,
               'error_code', c.error_code, 'endpoint', c.endpoint,
               'flow', CASE WHEN c.run_id IS NULL THEN c.flow END, 'as', told.told_as
           ))
    FROM changed AS c
    CROSS JOIN LATERAL (
        /* include webhooks/told.sql */
    ) AS told
    WHERE c.webhook > 0
       OR (SELECT EXISTS (SELECT FROM webhook_targets AS known WHERE known.events IS NOT NULL))
