-- Attempts that did not complete, told as events of their jobs: included by the statements that end
-- attempts so, from their `changed`. Its row is locked, so its number comes after all before it.
--
-- Only the first hundred of a job: interruptions and unreachable targets have no bound. Not those of
-- tasks, of which a run may have a million.
--
-- `changed` gives org_id, id, run_id, state, attempts, outcome, attempt_code, attempt_message,
-- dispatched_at, began_at, next_run_at, and efforts: how many attempts of any kind there were. Those
-- that were interrupted, met nobody or were told to stop are not counted by `attempts`.
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
