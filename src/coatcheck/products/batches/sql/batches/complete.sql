-- Complete the runs whose tasks have all ended: once, with everything that must be true then. The
-- webhook deliveries, to the batch's own target and to the organisation's endpoints, commit with it.
--
-- Only latched runs have a total. The counters are those of the row: the deltas were added before.
--
-- Every change of a batch locks the batch and then its run. To hold a run while waiting for its batch
-- could deadlock. So a run whose batch is being changed right now is left for the next tick.
--
-- $1 runs at most
WITH ended AS MATERIALIZED (
    SELECT r.org_id, r.id AS run_id, r.group_id AS batch_id, r.number, r.total, r.succeeded, r.failed,
           r.cancelled, r.succeeded_told, r.webhook_target,
           CASE WHEN r.cancel_requested_at IS NULL THEN 'completed' ELSE 'cancelled' END AS status
    FROM runs AS r
    JOIN batches AS b ON b.org_id = r.org_id AND b.id = r.group_id
    WHERE r.completed_at IS NULL AND r.latched_at IS NOT NULL
      AND r.succeeded + r.failed + r.cancelled = r.total
    LIMIT $1::integer
    FOR UPDATE OF b, r SKIP LOCKED
),
runs_done AS (
    UPDATE runs AS r
    SET completed_at = now(), succeeded_told = r.succeeded
    FROM ended AS e
    WHERE r.org_id = e.org_id AND r.id = e.run_id
),
batches_done AS (
    UPDATE batches AS b
    SET completed_at = now(), updated_at = now(),
        expires_at = now() + b.keep_seconds * interval '1 second'
    FROM ended AS e
    WHERE b.org_id = e.org_id AND b.id = e.batch_id AND b.current_run = e.run_id
),
notified AS (
    INSERT INTO webhook_deliveries (
        org_id, target_id, subject_kind, subject_id, run_id, event, facts
    )
    SELECT e.org_id, receiver.target, 'batch', e.batch_id, e.run_id, receiver.event,
           CASE receiver.event
               WHEN 'tasks.succeeded'
               THEN jsonb_build_object('succeeded', e.succeeded - e.succeeded_told)
               ELSE jsonb_build_object(
                   'status', e.status, 'run_number', e.number, 'total', e.total,
                   'succeeded', e.succeeded, 'failed', e.failed, 'cancelled', e.cancelled
               )
           END
    FROM ended AS e
    JOIN batches AS b ON b.org_id = e.org_id AND b.id = e.batch_id
    CROSS JOIN LATERAL (
        SELECT e.webhook_target AS target, 'tasks.succeeded' AS event
        WHERE e.webhook_target IS NOT NULL AND e.succeeded > e.succeeded_told
          AND 'tasks.succeeded' = ANY (b.webhook_events)
        UNION ALL
        SELECT e.webhook_target, 'batch.' || e.status
        WHERE e.webhook_target IS NOT NULL AND 'completed' = ANY (b.webhook_events)
        UNION ALL
        SELECT t.id, 'batch.' || e.status
        FROM webhook_targets AS t
        WHERE t.org_id = e.org_id AND t.events IS NOT NULL
          AND 'batch.' || e.status = ANY (t.events)
    ) AS receiver
    -- The end of a run that a rerun has replaced is not the end of the batch.
    WHERE b.deleted_at IS NULL AND b.current_run = e.run_id
),
/* include coatcheck.core:limits/clear_run.sql */
SELECT e.org_id, e.batch_id, e.run_id, e.status FROM ended AS e
