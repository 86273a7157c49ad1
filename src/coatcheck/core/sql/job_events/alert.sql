-- Jobs that failed with no attempt left, told as an event of theirs: included by the statements that
-- fail jobs so, from their `changed`. Its row is locked, so its number comes after all before it.
INSERT INTO job_events (org_id, job_id, kind, data, write_id)
    SELECT c.org_id, c.id, 'alert', convert_to(
               json_build_object(
                   'code', c.error_code, 'message', c.error_message, 'attempts', c.attempts
               )::text,
               'UTF8'
           ), 0
    FROM changed AS c
    WHERE c.state = 'failed' AND c.error_code IN ('max_retries_exhausted', 'worker_lost')
