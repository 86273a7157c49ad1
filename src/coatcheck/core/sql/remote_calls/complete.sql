-- finalizing -> completed, with its file, fenced by the lease of the process that stored it. A job that
-- is being cancelled does not complete: its result is discarded. No row: the caller finds out why, and
-- deletes what it stored.
--
-- The duration updates the estimate for the next polls.
--
-- $1 org   $2 job   $3 lease   $4 result   $5 seconds to keep by default
-- $6-$10 the file: name, blob key, media type, bytes, SHA-256; or NULLs
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id, octet_length(j.payload) AS payload_bytes
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.id = $2 AND j.lease = $3 AND j.state = 'finalizing'
    FOR UPDATE
),
changed AS (
    UPDATE jobs AS j
    SET state = 'completed', lease = NULL, result = $4::bytea,
        payload = CASE WHEN j.run_id IS NOT NULL THEN j.payload END,
        error_code = NULL, error_message = NULL, run_deadline = NULL,
        run_seconds = j.run_seconds + extract(epoch FROM now() - coalesce(j.started_at, now())),
        finished_at = now(), updated_at = now(),
        expires_at = CASE
            WHEN j.run_id IS NOT NULL THEN 'infinity'
            ELSE now() + coalesce(j.keep_completed_seconds, $5::integer) * interval '1 second'
        END
    FROM held AS h
    WHERE j.org_id = h.org_id AND j.id = h.id
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes + 1 AS attempts,
              h.payload_bytes, octet_length(j.result) AS result_bytes, j.run_seconds,
              j.run_id, j.webhook, NULL AS error_code, NULL AS error_message,
              old.state AS previous
),
filed AS (
    INSERT INTO artifacts (org_id, job_id, name, blob_key, media_type, bytes, sha256)
    SELECT c.org_id, c.id, $6::text, $7::text, $8::text, $9::bigint, $10::bytea
    FROM changed AS c
    WHERE $6::text IS NOT NULL
    ON CONFLICT (org_id, job_id, name) DO UPDATE
    SET blob_key = excluded.blob_key, media_type = excluded.media_type, bytes = excluded.bytes,
        sha256 = excluded.sha256, created_at = now()
),
done AS (
    DELETE FROM remote_calls AS r USING changed AS c
    WHERE r.org_id = c.org_id AND r.job_id = c.id
    RETURNING r.org_id, r.pace_key,
              extract(epoch FROM coalesce(r.looked_at, now()) - r.spawned_at) AS seconds
),
learnt AS (
    INSERT INTO remote_paces AS p (org_id, pace_key, usual_seconds, spread_seconds)
    SELECT d.org_id, d.pace_key, greatest(0, d.seconds), greatest(0, d.seconds) / 2 FROM done AS d
    ON CONFLICT (org_id, pace_key) DO UPDATE
    SET usual_seconds = p.usual_seconds
            + (excluded.usual_seconds - p.usual_seconds) / least(p.samples + 1, 8),
        spread_seconds = p.spread_seconds
            + (abs(excluded.usual_seconds - p.usual_seconds) - p.spread_seconds)
            / least(p.samples + 1, 8),
        samples = least(p.samples + 1, 1000000), updated_at = now()
),
metered AS (
    /* include usage/meter.sql */
),
notified AS (
    /* include webhooks/write_deliveries_from_changed.sql */
)
SELECT c.id FROM changed AS c
