-- The outbox: what this statement ended, for those who asked to be told. Included by every statement
-- that ends jobs, from its `changed`, so that the row commits with the end that it tells of.
--
-- `changed` gives org_id, id, state, endpoint, flow, attempts, run_id, webhook, error_code. Of jobs
-- (webhook 1, 2) every end is told, to who was named with the job; of a batch's tasks (3) a failure,
-- to whom the batch names. A task's flow is not told: it may end in a word of its payload, which goes
-- when the batch does. Without any of them, this looks at `changed` and at no table.
INSERT INTO webhook_deliveries (
        org_id, target_id, subject_kind, subject_id, run_id, event, facts
    )
    SELECT c.org_id, told.target_id, told.kind, c.id, c.run_id, told.kind || '.' || c.state,
           jsonb_strip_nulls(jsonb_build_object(
               'state', c.state, 'attempt', c.attempts, 'error_code', c.error_code,
               'endpoint', c.endpoint, 'flow', CASE WHEN c.run_id IS NULL THEN c.flow END
           ))
    FROM changed AS c
    CROSS JOIN LATERAL (
        SELECT w.target_id, 'job' AS kind
        FROM job_webhooks AS w
        WHERE c.webhook IN (1, 2) AND w.org_id = c.org_id AND w.job_id = c.id
        UNION ALL
        SELECT b.webhook_target, 'task'
        FROM batch_runs AS r
        JOIN batches AS b ON b.org_id = r.org_id AND b.id = r.batch_id
        WHERE c.webhook = 3 AND c.state = 'failed' AND r.org_id = c.org_id AND r.id = c.run_id
          AND b.webhook_target IS NOT NULL
    ) AS told
    WHERE c.webhook IS NOT NULL AND c.state IN ('completed', 'failed', 'cancelled')
