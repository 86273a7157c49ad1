-- The receivers of a state change `c`, and the form of each message: included by
-- write_deliveries_from_changed.sql and write_deliveries_from_moved.sql, which describe `c`.
--
-- The targets that the job names get its end (1), every state change (2), or those that its caller is
-- shown, its phases (4). A claim, a start, a return to the queue from a worker and an end are phases;
-- becoming due and a request to cancel are not. A claim that is not shown (jobs.webhook 5) is no
-- phase, and neither is its return to the queue before the start.
-- The target that a run names gets its tasks' failures (3).
-- The organisation's endpoints get the events that they subscribed to, whatever the job says; of tasks
-- only failures, and nothing of internal jobs (0), which nobody submitted. Those that subscribed to
-- alerts are sent a job that failed with no attempt left, as job_events/alert.sql records it.
SELECT w.target_id, 'job' AS kind, 'job.' || c.state AS event,
               CASE w.tells WHEN 1 THEN 'end' WHEN 2 THEN 'state' ELSE 'phase' END AS sent_as
        FROM job_webhooks AS w
        WHERE (c.webhook IN (2, 4, 5) OR c.webhook = 1 AND c.state IN ('completed', 'failed', 'cancelled'))
          AND w.org_id = c.org_id AND w.job_id = c.id
          AND CASE
              WHEN w.tells = 2 OR c.state IN ('completed', 'failed', 'cancelled') THEN true
              WHEN w.tells = 1 OR c.state = 'cancel_requested' THEN false
              WHEN c.state = 'dispatching' THEN c.webhook = 4
              WHEN c.state NOT IN ('queued', 'retrying') THEN true
              WHEN c.previous = 'dispatching' THEN c.webhook = 4
              ELSE c.previous NOT IN ('staged', 'retrying')
          END
        UNION ALL
        SELECT r.webhook_target, 'task', 'task.' || c.state, 'end'
        FROM runs AS r
        WHERE c.webhook = 3 AND c.state = 'failed' AND r.org_id = c.org_id AND r.id = c.run_id
          AND r.webhook_target IS NOT NULL
        UNION ALL
        SELECT t.id, CASE WHEN c.run_id IS NULL THEN 'job' ELSE 'task' END, wanted.event, 'endpoint'
        FROM webhook_targets AS t
        CROSS JOIN LATERAL unnest(t.events) AS wanted (event)
        WHERE t.org_id = c.org_id AND t.events IS NOT NULL
          AND CASE
              WHEN c.run_id IS NOT NULL AND c.state <> 'failed' THEN false
              WHEN c.webhook = 0 THEN false
              WHEN wanted.event
                   = CASE WHEN c.run_id IS NULL THEN 'job.' ELSE 'task.' END || c.state THEN true
              ELSE wanted.event = 'job.alert' AND c.run_id IS NULL AND c.state = 'failed'
                   AND c.error_code IN ('max_retries_exhausted', 'worker_lost')
          END
