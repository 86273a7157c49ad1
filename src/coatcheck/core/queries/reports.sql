-- name: add once
-- Add log lines and output chunks of running jobs, in order. Fenced: the job's row is locked while its
-- lease is compared, so a holder that lost it cannot add a line after its successor's. The lease is
-- compared for each line: a worker that claimed a job again, after a crash of the server undid the
-- first claim, may send lines of both in one statement.
--
-- The lock also keeps the order for readers. A writer of a job's events holds it, against all others,
-- from before a number is drawn until the commit: so of one job's events a higher number is never
-- visible before a lower one, and a reader that continues after the last one it saw misses none.
--
-- Jobs are locked in the order of their keys, as in jobs/mark_started, which the same worker sends
-- concurrently: two that meet wait, and do not deadlock.
--
-- Once: after a lost answer the caller asks was_added. A repeat would add the lines twice.
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease
    FROM (SELECT DISTINCT org_id, id, lease FROM unnest(:orgs::text[], :ids::uuid[], :leases::bigint[])
          AS e (org_id, id, lease)) AS e
    JOIN jobs AS j ON j.org_id = e.org_id AND j.id = e.id AND j.lease = e.lease
    ORDER BY j.org_id, j.id
    FOR NO KEY UPDATE OF j
)
INSERT INTO job_events (org_id, job_id, kind, data, write_id)
SELECT e.org_id, e.id, e.kind, e.data, :write_id::bigint
FROM unnest(:orgs::text[], :ids::uuid[], :leases::bigint[], :kinds::text[], :data::bytea[]) WITH ORDINALITY
    AS e (org_id, id, lease, kind, data, position)
JOIN held AS h ON h.org_id = e.org_id AND h.id = e.id AND h.lease = e.lease
ORDER BY e.position

-- name: add_artifact
-- Attach a stored blob to its job as an artifact, fenced by the lease. Attaching the same name again
-- replaces the old artifact and opens its record; returns the replaced blob, to be deleted. No row: the
-- lease is lost, and the caller deletes its blob.
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id, j.owner, j.endpoint, CASE WHEN j.run_id IS NULL THEN j.flow ELSE '' END AS flow
    FROM jobs AS j
    WHERE j.org_id = :org AND j.id = :job AND j.lease = :lease
    FOR SHARE
),
gone AS MATERIALIZED (
    SELECT a.*, h.owner, h.endpoint, h.flow, NULL::timestamptz AS deleted_at, 'replaced' AS mechanism
    FROM artifacts AS a JOIN held AS h ON a.org_id = h.org_id AND a.job_id = h.id
    WHERE a.name = :name AND a.blob_key <> :blob_key
),
added AS (
    INSERT INTO artifacts (org_id, job_id, name, blob_key, media_type, bytes, sha256)
    SELECT h.org_id, h.id, :name, :blob_key, :media_type, :size, :sha256 FROM held AS h
    ON CONFLICT (org_id, job_id, name) DO UPDATE
    SET blob_key = excluded.blob_key, media_type = excluded.media_type, bytes = excluded.bytes,
        sha256 = excluded.sha256, created_at = now()
    RETURNING org_id
),
replaced AS (
    /* include artifacts/open_records */
)
SELECT r.org_id, r.job_id, r.seq, r.blob_key FROM added LEFT JOIN replaced AS r ON true

-- name: note_attempts
-- Write the events of attempts that did not complete, from `attempts` of jobs/ended: one for the attempt,
-- and an alert if the job failed with no attempt left. The job's row is locked, so their numbers are the
-- highest.
--
-- Attempts are noted only up to the hundredth of a job: interruptions and unreachable targets have no
-- bound. Not for tasks, of which a run may have a million.
--
-- `attempts` gives org_id, id, run_id, state, error_code, error_message, attempts, outcome, attempt_code,
-- attempt_message, dispatched_at, began_at, next_run_at, and efforts: the number of attempts of any kind.
-- The column `attempts` does not count those that were interrupted, found their target unreachable or
-- were cancelled.
INSERT INTO job_events (org_id, job_id, kind, data, write_id)
    SELECT c.org_id, c.id, event.kind, convert_to(event.data::text, 'UTF8'), 0
    FROM attempts AS c
    CROSS JOIN LATERAL (
        SELECT 'attempt' AS kind, json_build_object(
                   'attempt', c.attempts + CASE WHEN c.outcome IN ('failed', 'crashed') THEN 0 ELSE 1 END,
                   'outcome', c.outcome, 'state', c.state,
                   'code', c.attempt_code, 'message', c.attempt_message,
                   'dispatched_at', c.dispatched_at, 'started_at', c.began_at,
                   'ended_at', now(), 'next_run_at', c.next_run_at
               ) AS data
        WHERE c.run_id IS NULL AND c.efforts <= 100
        UNION ALL
        SELECT 'alert', json_build_object(
                   'code', c.error_code, 'message', c.error_message, 'attempts', c.attempts
               )
        WHERE c.state = 'failed' AND c.error_code IN ('max_retries_exhausted', 'worker_lost')
    ) AS event

-- name: deployment
-- The id of this database.
SELECT id FROM deployment

-- name: known_blobs
-- Which of these blobs belong to an artifact. The others are orphans.
SELECT a.blob_key
FROM unnest(:jobs::uuid[], :blob_keys::text[]) AS b (job_id, blob_key)
JOIN artifacts AS a ON a.job_id = b.job_id AND a.blob_key = b.blob_key

-- name: last_mark
-- The last JSON chunk of a job that begins with a mark: a handler writes it to restart its output, and
-- everything before no longer counts. Reads all of the job's output, so only readers that join late
-- ask for it.
--
-- :mark  how the chunk begins
SELECT max(seq) AS seq
FROM job_events
WHERE org_id = :org AND job_id = :job AND kind = 'json'
  AND substr(data, 1, octet_length(:mark::bytea)) = :mark::bytea

-- name: list_artifacts
-- The artifacts of a job.
SELECT name, blob_key, media_type, bytes, sha256, created_at
FROM artifacts
WHERE org_id = :org AND job_id = :job
ORDER BY name

-- name: lock_job
-- Wait until nobody adds to a job's events: a statement whose answer was lost may still run.
SELECT FROM jobs WHERE org_id = :org AND id = :job FOR NO KEY UPDATE

-- name: read
-- A job's log lines, output chunks and alerts after :after, in order. Events of attempts are not among them:
-- org_jobs/log has those. A page ends with the event that fills it: nothing behind it is read.
--
-- :after  after this one   :bytes_max  bytes that end the page
SELECT p.seq, p.kind, p.data, p.at
FROM (
    SELECT e.seq, e.kind, e.data, e.at,
           sum(octet_length(e.data)) OVER (ORDER BY e.seq ROWS UNBOUNDED PRECEDING)
               - octet_length(e.data) AS bytes_before
    FROM (
        SELECT seq, kind, data, at
        FROM job_events
        WHERE org_id = :org AND job_id = :job AND seq > :after AND kind <> 'attempt'
        ORDER BY seq
        LIMIT :limit
    ) AS e
) AS p
WHERE p.bytes_before < :bytes_max::bigint
ORDER BY p.seq

-- name: tail
-- The new events of jobs after the last that each reader saw, and the state of each: one statement for
-- all readers that arrived while the last one was in flight.
--
-- A job and its events are read in one snapshot: if the job has ended and its page of events is not
-- full, no event follows. A page has at most :events_max events, and ends when its bytes reach :bytes_max; a value's
-- length is read without the value.
--
-- :after  after which event of each   :bytes_max  bytes in a page
SELECT j.org_id, j.id, w.after, j.state::text AS state, j.failures, j.crashes, j.error_code,
       j.error_message, page.seqs, page.kinds, page.data, page.times
FROM unnest(:orgs::text[], :ids::uuid[], :after::bigint[]) AS w (org_id, id, after)
JOIN jobs AS j ON j.org_id = w.org_id AND j.id = w.id
CROSS JOIN LATERAL (
    SELECT array_agg(e.seq ORDER BY e.seq) AS seqs, array_agg(e.kind ORDER BY e.seq) AS kinds,
           array_agg(e.data ORDER BY e.seq) AS data, array_agg(e.at ORDER BY e.seq) AS times
    FROM (
        SELECT notified.*, sum(octet_length(notified.data)) OVER (ORDER BY notified.seq) - octet_length(notified.data)
                   AS bytes_before
        FROM (
            SELECT seq, kind, data, at
            FROM job_events
            WHERE org_id = w.org_id AND job_id = w.id AND seq > w.after AND kind <> 'attempt'
            ORDER BY seq
            LIMIT :events_max
        ) AS notified
    ) AS e
    WHERE e.bytes_before < :bytes_max
) AS page

-- name: was_added
-- Whether the statement numbered :write_id, whose answer was lost, took effect. It wrote all its rows or none.
SELECT EXISTS (
    SELECT FROM job_events WHERE org_id = :org AND job_id = :job AND write_id = :write_id
)
