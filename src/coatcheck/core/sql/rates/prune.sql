-- Delete windows that ended a day ago: their key was revoked, or nobody calls. A row that is being
-- written is in use, so it is skipped and not waited for.
DELETE FROM rate_windows AS w
USING (
    SELECT org_id, name, seconds FROM rate_windows
    WHERE window_start + make_interval(secs => seconds) < clock_timestamp() - interval '1 day'
    FOR UPDATE SKIP LOCKED
) AS old
WHERE w.org_id = old.org_id AND w.name = old.name AND w.seconds = old.seconds
