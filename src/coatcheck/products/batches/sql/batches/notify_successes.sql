-- Write webhook deliveries for the tasks that succeeded since the last one: one per run, at most every
-- $1 seconds.
--
-- Returns whether some runs have to wait for their next delivery.
WITH untold AS MATERIALIZED (
    SELECT r.org_id, r.id AS run_id, r.webhook_target
    FROM runs AS r
    JOIN batches AS b ON b.org_id = r.org_id AND b.id = r.group_id
    WHERE r.completed_at IS NULL AND r.succeeded > r.succeeded_told
      AND 'tasks.succeeded' = ANY (b.webhook_events) AND r.webhook_target IS NOT NULL
      AND b.deleted_at IS NULL
),
due AS MATERIALIZED (
    SELECT r.org_id, r.id AS run_id, r.group_id AS batch_id, r.succeeded - r.succeeded_told AS succeeded,
           u.webhook_target
    FROM untold AS u
    JOIN runs AS r ON r.org_id = u.org_id AND r.id = u.run_id
    WHERE r.completed_at IS NULL AND r.succeeded > r.succeeded_told
      AND (
          r.succeeded_told_at IS NULL
          OR r.succeeded_told_at < now() - $1::double precision * interval '1 second'
      )
    FOR UPDATE OF r SKIP LOCKED
),
noted AS (
    UPDATE runs AS r
    SET succeeded_told = r.succeeded, succeeded_told_at = now()
    FROM due AS d
    WHERE r.org_id = d.org_id AND r.id = d.run_id
),
notified AS (
    INSERT INTO webhook_deliveries (
        org_id, target_id, subject_kind, subject_id, run_id, event, facts
    )
    SELECT d.org_id, d.webhook_target, 'batch', d.batch_id, d.run_id, 'tasks.succeeded',
           jsonb_build_object('succeeded', d.succeeded)
    FROM due AS d
)
SELECT (SELECT count(*) FROM untold) > (SELECT count(*) FROM due) AS is_early
