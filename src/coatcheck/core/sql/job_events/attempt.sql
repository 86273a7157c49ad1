-- Write an event for each attempt that did not complete: included by the statements that end attempts
-- like that, from their `changed`. The job's row is locked, so its number is the highest.
--
-- Only for the first hundred attempts of a job: interruptions and unreachable targets have no bound.
-- Not for tasks, of which a run may have a million.
--
-- `changed` gives org_id, id, run_id, state, attempts, outcome, attempt_code, attempt_message,
-- dispatched_at, began_at, next_run_at, and efforts: the number of attempts of any kind. `attempts` does
-- not count those that were interrupted, found their target unreachable or were cancelled.
INSERT INTO job_events (org_id, job_id, kind, data, write_id)
    SELECT c.org_id, c.id, 'attempt', convert_to(
               json_build_object(
                   'attempt', c.attempts + CASE WHEN c.outcome IN ('failed', 'crashed') THEN 0 ELSE 1 END,
                   'outcome', c.outcome, 'state', c.state,
                   'code', c.attempt_code, 'message', c.attempt_message,
                   'dispatched_at', c.dispatched_at, 'started_at', c.began_at,
                   'ended_at', now(), 'next_run_at', c.next_run_at
               )::text,
               'UTF8'
           ), 0
    FROM changed AS c
    WHERE c.run_id IS NULL AND c.efforts <= 100
