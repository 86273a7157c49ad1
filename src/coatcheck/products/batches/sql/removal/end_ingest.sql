-- End the ingest of a cancelled run: its parts are done, and it is latched with the tasks written so
-- far, so that it completes when those have ended.
--
-- A writer of a chunk locks the run first, and writes nothing to a cancelled one. This statement locks
-- it first as well, and so waits for a chunk that is being written. A repeat changes nothing.
--
-- $1 org   $2 run
WITH run AS MATERIALIZED (
    SELECT r.org_id, r.id FROM runs AS r
    WHERE r.org_id = $1 AND r.id = $2 AND r.cancel_requested_at IS NOT NULL
    FOR UPDATE
),
latched AS (
    UPDATE runs AS r
    SET total = r.tasks, latched_at = now(), closed_at = coalesce(r.closed_at, now())
    FROM run
    WHERE r.org_id = run.org_id AND r.id = run.id AND r.latched_at IS NULL
    RETURNING r.id
),
ended AS (
    UPDATE batch_parts AS p
    SET state = 'done', updated_at = now()
    FROM run
    WHERE p.org_id = run.org_id AND p.run_id = run.id AND p.state IN ('pending', 'failed')
    RETURNING p.org_id, p.id, p.upload_id
),
released AS (
    UPDATE uploads AS u SET released_at = now()
    FROM ended AS e
    WHERE u.org_id = e.org_id AND u.id = e.upload_id
)
SELECT (SELECT count(*) FROM latched) AS latched, (SELECT count(*) FROM ended) AS parts
