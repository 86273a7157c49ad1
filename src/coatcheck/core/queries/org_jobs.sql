-- name: attempts
-- A job's attempts that did not complete, in order, and when its remote work was last spawned.
SELECT e.data, NULL::timestamptz AS spawned_at
FROM (
    SELECT e.seq, e.data
    FROM job_events AS e
    WHERE e.org_id = :org AND e.job_id = :job AND e.kind = 'attempt'
    ORDER BY e.seq
) AS e
UNION ALL
SELECT NULL, r.spawned_at
FROM remote_calls AS r
WHERE r.org_id = :org AND r.job_id = :job AND r.spawned_at IS NOT NULL

-- name: changes
-- An organisation's jobs that changed after one snapshot and up to another, in the order of their ids: a
-- page of a stream of changes. It needs no column, no index and no write: a row names the transaction
-- that wrote it, and a snapshot says of each transaction whether it had committed.
--
-- Looks at the newest :rows_max jobs, backwards along the primary key; lists/page_filter says why the ids
-- have bounds. Tasks are left out. If nothing changed, one row has the snapshot.
--
-- :reader: theirs, and what anyone may read; NULL for all.
WITH horizon AS MATERIALIZED (
    /* include lists/horizon */
),
walked AS MATERIALIZED (
    SELECT j.id, j.state, j.owner, /* include lists/row_transaction */ AS written_by
    FROM jobs AS j, horizon AS h
    WHERE j.org_id = :org AND j.run_id IS NULL AND j.id >= '01000000-0000-0000-0000-000000000000'
    ORDER BY j.id DESC
    LIMIT :rows_max
),
page AS MATERIALIZED (
    SELECT w.id
    FROM walked AS w, horizon AS h
    WHERE w.id > :after::uuid AND (:reader::text IS NULL OR w.owner IN ('*', :reader))
      AND /* include lists/is_changed */
    ORDER BY w.id
    LIMIT :limit
)
SELECT h.seen::text AS seen, /* include org_jobs/view_columns */
FROM horizon AS h
LEFT JOIN page AS p ON true
LEFT JOIN LATERAL (SELECT * FROM jobs AS j WHERE j.org_id = :org AND j.id = p.id) AS j ON true
ORDER BY j.id

-- name: filter
-- The filter of a list of jobs: included by the statements that walk jobs. NULL does not narrow it. Sent
-- with custom plans, so that filters which are NULL are not part of the plan.
--
-- :other_services_than  no service of these   :reader  reader: theirs, and what anyone may read
-- :retryable  whether only those that can be retried and have not been
(:states::text[] IS NULL OR j.state = ANY (:states::text[]::job_state[]))
       AND (:lane::text IS NULL OR j.lane = :lane::text::job_lane)
       AND (:services::text[] IS NULL OR job_service(j.endpoint, j.flow) = ANY (:services))
       AND (:other_services_than::text[] IS NULL OR job_service(j.endpoint, j.flow) <> ALL (:other_services_than))
       AND (:endpoint::text IS NULL OR j.endpoint = :endpoint OR (j.endpoint = /* upstream endpoint */ AND j.flow = :endpoint))
       AND (:reader::text IS NULL OR j.owner IN ('*', :reader))
       AND (:owner::text IS NULL OR j.owner = :owner)
       AND (:error_code::text IS NULL OR j.error_code = :error_code)
       AND /* include lists/every_list */
       AND (:request_id::text IS NULL OR j.request_id = :request_id)
       AND (NOT :retryable::boolean OR (
           j.state IN ('failed', 'cancelled') AND j.payload IS NOT NULL
           AND NOT EXISTS (SELECT FROM jobs AS r WHERE r.org_id = j.org_id AND r.retry_of = j.id)
       ))

-- name: find
-- The jobs that hold any of these idempotency keys.
SELECT /* include org_jobs/view_columns */
FROM jobs AS j
WHERE j.org_id = :org AND j.idempotency_key = ANY (:keys::text[])
ORDER BY j.id DESC

-- name: get
-- A job for the people who manage it: with its result unless that is long; for a task also with its
-- group, and with what its caller called. No group while that is being removed.
--
-- :result_bytes_max  bytes that a result may have
SELECT /* include org_jobs/view_columns */,
       CASE WHEN octet_length(j.result) <= :result_bytes_max::integer THEN j.result END AS shown_result,
       run.group_id, run.service, run.service_endpoint
FROM jobs AS j
LEFT JOIN runs AS run
    ON run.org_id = j.org_id AND run.id = j.run_id AND run.removed_at IS NULL
WHERE j.org_id = :org AND j.id = :job

-- name: input
-- A job's payload, as long as it is kept.
SELECT j.payload FROM jobs AS j WHERE j.org_id = :org AND j.id = :job

-- name: log
-- A job's log for people after :after, in order: log lines, alerts, and ended attempts. Output is skipped,
-- but only so much: returns the last event that was read, to continue from there.
--
-- :after  after this event   :rows_max  rows to read   :limit  rows to show
WITH walked AS MATERIALIZED (
    SELECT e.seq, e.kind, e.at
    FROM job_events AS e
    WHERE e.org_id = :org AND e.job_id = :job AND e.seq > :after
    ORDER BY e.seq
    LIMIT :rows_max
),
page AS MATERIALIZED (
    SELECT w.seq
    FROM walked AS w
    WHERE w.kind IN ('log', 'alert', 'attempt')
    ORDER BY w.seq
    LIMIT :limit
)
SELECT progress.walked_rows, progress.walked_to, e.seq, e.kind, e.data, e.at
FROM (SELECT count(*) AS walked_rows, max(w.seq) AS walked_to FROM walked AS w) AS progress
LEFT JOIN page AS p ON true
LEFT JOIN LATERAL (
    SELECT * FROM job_events AS e WHERE e.org_id = :org AND e.job_id = :job AND e.seq = p.seq
) AS e ON true
ORDER BY e.seq

-- name: page
-- The page of the `walked` jobs: included by the statements that walk.
page AS MATERIALIZED (
    SELECT w.id FROM walked AS w WHERE w.fits ORDER BY w.id DESC LIMIT :limit
)
SELECT progress.walked_rows, progress.walked_to, /* include org_jobs/view_columns */
FROM (
    SELECT count(*) AS walked_rows,
           (SELECT w.id FROM walked AS w ORDER BY w.id LIMIT 1) AS walked_to
    FROM walked
) AS progress
LEFT JOIN page AS p ON true
LEFT JOIN LATERAL (SELECT * FROM jobs AS j WHERE j.org_id = :org AND j.id = p.id) AS j ON true
ORDER BY j.id DESC

-- name: retry
-- Create a job that repeats an unsuccessful one: -> queued.
-- Everything that the old one was submitted with is taken from its row, in the statement that creates
-- the new one. Not its key, which names the old job, nor the time at which it was due: the new one is
-- due now. A deadline for its start is as far away as it was for the old one.
--
-- Nothing is created if there is nothing to retry, or if the key or the id of the new one is taken. The
-- old row is locked, so that neither it nor its webhooks are deleted meanwhile.
--
-- :payload  its own, if that differs   :options  of which it has the traceparent: that of the retry,
-- not the old job's
--
-- Returns the state of the old one, no row if there is none, and whether the new one was created.
WITH old_job AS MATERIALIZED (
    SELECT j.* FROM jobs AS j WHERE j.org_id = :org AND j.id = :old FOR SHARE
),
created AS (
    INSERT INTO jobs (
        org_id, id, lane, endpoint, flow, failures_max, payload, owner, idempotency_key,
        fingerprint, request_id, start_deadline, timeout_seconds, keep_completed_seconds,
        keep_failed_seconds, webhook, keeps_input, retry_of, traceparent
    )
    SELECT o.org_id, :new::uuid, o.lane, o.endpoint, o.flow, o.failures_max,
           coalesce(:payload::bytea, o.payload), o.owner, :idempotency_key::text, :fingerprint::bytea, :request_id::text,
           now() + (o.start_deadline - o.created_at), o.timeout_seconds, o.keep_completed_seconds,
           o.keep_failed_seconds, o.webhook, o.keeps_input, o.id,
           :options::jsonb ->> 'traceparent'
    FROM old_job AS o
    WHERE o.state IN ('failed', 'cancelled') AND o.payload IS NOT NULL AND o.run_id IS NULL
    ON CONFLICT DO NOTHING
    RETURNING org_id, id, webhook, lane, endpoint, flow, run_at, start_deadline
),
/* include start_deadlines/add */,
queued AS (
    SELECT c.org_id, c.id, c.lane, c.endpoint, c.flow, c.run_at FROM created AS c
),
added AS (
    /* include queue/add */
),
bound AS (
    INSERT INTO job_webhooks (org_id, job_id, target_id, tells)
    SELECT c.org_id, c.id, w.target_id, w.tells
    FROM created AS c
    JOIN job_webhooks AS w ON w.org_id = :org AND w.job_id = :old
    WHERE c.webhook IS NOT NULL
),
named AS (
    SELECT t.org_id, t.id, t.url
    FROM created AS c
    JOIN job_webhooks AS w ON w.org_id = :org AND w.job_id = :old
    JOIN webhook_targets AS t ON t.org_id = w.org_id AND t.id = w.target_id
    WHERE c.webhook IS NOT NULL
),
enlisted AS (
    /* include webhooks/target_upsert */
)
SELECT o.state::text AS state, o.payload IS NOT NULL AS input_kept,
       EXISTS (SELECT FROM created) AS created
FROM old_job AS o

-- name: view_columns
-- What those who manage jobs see of one, besides what every reader does: in the order of OrgJob.
-- Included by the statements here. A long result is left out: its length says so.
--
-- The retry of a job is looked for only where there can be one.
/* include jobs/view_columns */, NULL::bytea AS result,
       j.run_id, j.task_index, j.payload IS NOT NULL AS input_kept, j.retry_of,
       CASE WHEN j.state IN ('failed', 'cancelled') THEN (
           SELECT r.id
           FROM jobs AS r
           WHERE r.org_id = j.org_id AND r.retry_of = j.id
           ORDER BY r.id DESC
           LIMIT 1
       ) END AS retried_as,
       j.traceparent

-- name: walk
-- A page of an organisation's jobs, newest first: backwards along the primary key, a bounded number of
-- rows. Returns how many jobs were walked, and the last of them: the next page continues from there. If
-- no job matches, one row says so.
--
-- Tasks are not listed; lists/page_filter says why the ids have bounds.
--
-- :before  older than this id   :above  not older than this one   :rows_max  rows to walk
-- :limit  rows to show
WITH walked AS MATERIALIZED (
    SELECT j.id, (/* include org_jobs/filter */) AS fits
    FROM jobs AS j
    WHERE j.org_id = :org AND j.run_id IS NULL AND j.id < :before::uuid AND j.id >= :above::uuid
    ORDER BY j.id DESC
    LIMIT :rows_max
),
/* include org_jobs/page */

-- name: walk_live
-- As walk, for jobs that have not ended: by the tables that name them, so that the history is not
-- walked. Looks at all of the organisation's live jobs, a bounded number of each kind; if there are
-- more, `walked_rows` is above :rows_max, and the caller walks in order instead.
--
-- Tasks are read, too, and then left out: their groups have their own lists.
--
-- Parameters as in walk
WITH live AS MATERIALIZED (
    (
        SELECT n.id, NULL::uuid AS run_id
        FROM queue AS q
        CROSS JOIN LATERAL unnest(q.ids) AS n (id)
        WHERE q.org_id = :org
        LIMIT :rows_max + 1
    )
    UNION ALL
    (
        SELECT p.id, p.run_id
        FROM postponed AS p
        WHERE p.org_id = :org
        LIMIT :rows_max + 1
    )
    UNION ALL
    (
        SELECT j.id, j.run_id
        FROM held_jobs AS j
        WHERE j.org_id = :org
        LIMIT :rows_max + 1
    )
),
walked AS MATERIALIZED (
    SELECT j.id, (/* include org_jobs/filter */) AS fits
    FROM live AS l
    CROSS JOIN LATERAL (SELECT * FROM jobs AS j WHERE j.org_id = :org AND j.id = l.id) AS j
    WHERE j.run_id IS NULL AND l.id < :before::uuid AND l.id >= :above::uuid
      AND (SELECT count(*) FROM live) <= :rows_max
),
page AS MATERIALIZED (
    SELECT w.id FROM walked AS w WHERE w.fits ORDER BY w.id DESC LIMIT :limit
)
SELECT progress.walked_rows, NULL::uuid AS walked_to, /* include org_jobs/view_columns */
FROM (SELECT count(*) AS walked_rows FROM live) AS progress
LEFT JOIN page AS p ON true
LEFT JOIN LATERAL (SELECT * FROM jobs AS j WHERE j.org_id = :org AND j.id = p.id) AS j ON true
ORDER BY j.id DESC

-- name: walk_unsuccessful
-- As walk, for jobs that failed or were cancelled: along unsuccessful_jobs, so that completed jobs are
-- not walked.
--
-- Parameters as in walk
WITH walked AS MATERIALIZED (
    SELECT j.id, (/* include org_jobs/filter */) AS fits
    FROM (
        SELECT u.id
        FROM unsuccessful_jobs AS u
        WHERE u.org_id = :org AND u.id < :before::uuid AND u.id >= :above::uuid
        ORDER BY u.id DESC
        LIMIT :rows_max
    ) AS u
    CROSS JOIN LATERAL (SELECT * FROM jobs AS j WHERE j.org_id = :org AND j.id = u.id OFFSET 0) AS j
),
/* include org_jobs/page */
