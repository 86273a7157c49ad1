-- Write an alert event for jobs that failed with no attempt left: included by the statements that fail
-- jobs like that, from their `changed`. The job's row is locked, so its number is the highest.
INSERT INTO job_events (org_id, job_id, kind, data, write_id)
    SELECT c.org_id, c.id, 'alert', convert_to(
               json_build_object(
                   'code', c.error_code, 'message', c.error_message, 'attempts', c.attempts
               )::text,
               'UTF8'
           ), 0
    FROM changed AS c
    WHERE c.state = 'failed' AND c.error_code IN ('max_retries_exhausted', 'worker_lost')
