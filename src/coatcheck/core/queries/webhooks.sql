-- name: add_job_webhooks
-- Write the webhooks of the jobs that were just created: included by the statements that create jobs,
-- from their `created`. :orgs, :ids and :options are as in jobs/submit; the options of a job
-- with webhooks have `webhooks`: a list of target, url and tells.
--
-- Not a join: pinned plans would compare each row with each. This way it is a hashed lookup.
INSERT INTO job_webhooks (org_id, job_id, target_id, tells)
    SELECT s.org_id, s.id, w.target, w.tells
    FROM unnest(:orgs::text[], :ids::uuid[], :options::jsonb[]) AS s (org_id, id, options)
    CROSS JOIN LATERAL jsonb_to_recordset(s.options -> 'webhooks') AS w (target uuid, tells smallint)
    WHERE CASE WHEN w.target IS NULL THEN false ELSE s.id IN (SELECT c.id FROM created AS c) END

-- name: change_endpoint
-- Change the given fields of an endpoint. One that answered 410 is enabled again. A new URL starts
-- without failures, and without the old one's Retry-After.
--
-- :description  description; each NULL to leave it
UPDATE webhook_targets AS t
SET url = coalesce(:url::text, t.url), events = coalesce(:events::text[], t.events),
    description = coalesce(:description::text, t.description), disabled_at = NULL,
    failures = CASE WHEN t.url <> :url OR t.disabled_at IS NOT NULL THEN 0 ELSE t.failures END,
    not_before = CASE WHEN t.url <> :url THEN NULL ELSE t.not_before END
WHERE t.org_id = :org AND t.id = :endpoint AND t.events IS NOT NULL
RETURNING /* include webhooks/endpoint_columns */

-- name: claim
-- Claim due deliveries so that no receiver waits for another: after webhooks/lock_claims.
--
-- From each target its oldest, up to its limit: :per_target at a time, one while it fails, none while its
-- Retry-After lasts, it is paused, or it is pulled (pull). A delivery is skipped while an earlier one
-- about the same subject has never been tried: so a receiver that works gets a job's changes in order.
-- An organisation has room for :per_org. Then in turns: every organisation's first, every organisation's
-- second, including its deliveries in flight. Those to failing targets get at most :failing_places of the places.
--
-- The targets are found by skipping through the index from one to the next, :targets_max of them at most; the
-- next claim continues after the last one, which a row without an id returns.
--
-- Leases start with the statement: the transaction may have waited long for its turn.
--
-- :failing_places  of them for targets that fail   :per_org  an organisation's
-- :per_target  a target's   :lease_seconds  seconds that the lease lasts
-- :after_target  org and target to start after   :targets_max  targets at most
WITH RECURSIVE seen AS (
    (
        SELECT d.org_id, d.target_id, 1 AS nth
        FROM webhook_deliveries AS d
        WHERE d.status = 'pending' AND (d.org_id, d.target_id) > (:after_org::text, :after_target::uuid)
        ORDER BY d.org_id, d.target_id
        LIMIT 1
    )
    UNION ALL
    SELECT n.org_id, n.target_id, s.nth + 1
    FROM seen AS s
    CROSS JOIN LATERAL (
        SELECT d.org_id, d.target_id
        FROM webhook_deliveries AS d
        WHERE d.status = 'pending' AND (d.org_id, d.target_id) > (s.org_id, s.target_id)
        ORDER BY d.org_id, d.target_id
        LIMIT 1
    ) AS n
    WHERE s.nth < :targets_max::integer
),
under_way AS MATERIALIZED (
    SELECT d.org_id, d.target_id
    FROM webhook_deliveries AS d
    WHERE d.lease IS NOT NULL AND d.due_at > now()
),
ready AS MATERIALIZED (
    SELECT s.org_id, d.id, d.due_at, d.nth, t.url, t.failures > 0 AS failing,
           t.events IS NOT NULL AS to_endpoint, t.generation, t.rotated_at
    FROM seen AS s
    JOIN webhook_targets AS t ON t.org_id = s.org_id AND t.id = s.target_id
    CROSS JOIN LATERAL (
        SELECT w.id, w.due_at, row_number() OVER (ORDER BY w.due_at, w.id) AS nth
        FROM webhook_deliveries AS w
        WHERE w.status = 'pending' AND w.org_id = s.org_id AND w.target_id = s.target_id
          AND w.due_at <= now()
          AND NOT EXISTS (
              SELECT
              FROM webhook_deliveries AS e
              WHERE e.status = 'pending' AND e.tries = 0 AND e.org_id = w.org_id
                AND e.target_id = w.target_id AND e.subject_id = w.subject_id AND e.id < w.id
          )
        ORDER BY w.due_at, w.id
        LIMIT greatest(
            0,
            CASE WHEN t.failures > 0 THEN 1 ELSE :per_target::integer END
            - (
                SELECT count(*)
                FROM under_way AS u
                WHERE u.org_id = s.org_id AND u.target_id = s.target_id
            )
        )
    ) AS d
    WHERE t.disabled_at IS NULL AND (t.not_before IS NULL OR t.not_before <= now())
      AND t.paused_at IS NULL AND NOT t.pulled
),
in_turn AS MATERIALIZED (
    SELECT r.*, row_number() OVER (PARTITION BY r.org_id ORDER BY r.nth, r.due_at, r.id)
                + (SELECT count(*) FROM under_way AS u WHERE u.org_id = r.org_id) AS turn
    FROM ready AS r
),
ranked AS MATERIALIZED (
    SELECT i.*, row_number() OVER (PARTITION BY i.failing ORDER BY i.turn, i.due_at, i.id) AS place
    FROM in_turn AS i
    WHERE i.turn <= :per_org::integer
),
chosen AS MATERIALIZED (
    SELECT r.org_id, r.id, r.url, r.failing, r.to_endpoint, r.generation, r.rotated_at
    FROM ranked AS r
    WHERE NOT r.failing OR r.place <= :failing_places::integer
    ORDER BY r.turn, r.due_at, r.id
    LIMIT :places::integer
),
claimed AS (
    UPDATE webhook_deliveries AS d
    SET lease = :lease::uuid,
        due_at = statement_timestamp() + :lease_seconds::double precision * interval '1 second'
    FROM chosen AS c
    WHERE d.org_id = c.org_id AND d.id = c.id AND d.status = 'pending' AND d.due_at <= now()
    RETURNING d.org_id, d.id, d.target_id, c.url, d.subject_kind, d.subject_id, d.run_id, d.event,
              d.facts::text AS facts, d.tries, d.created_at, d.last_try_at, c.failing, c.to_endpoint,
              c.generation AS own_generation, c.rotated_at AS own_rotated_at
)
SELECT c.org_id, c.id, c.target_id, c.url, c.subject_kind, c.subject_id, c.run_id, c.event, c.facts,
       c.tries, c.created_at, c.failing, c.to_endpoint,
       CASE WHEN c.to_endpoint THEN c.own_generation ELSE coalesce(k.generation, 1) END AS generation,
       CASE WHEN c.to_endpoint THEN c.own_rotated_at ELSE k.rotated_at END AS rotated_at,
       clock_timestamp() AS claimed_at,
       (
           SELECT j.traceparent
           FROM jobs AS j
           WHERE c.subject_kind = 'job' AND j.org_id = c.org_id AND j.id = c.subject_id
       ) AS traceparent,
       c.last_try_at IS NULL AS is_first_try
FROM claimed AS c
LEFT JOIN webhook_secrets AS k ON k.org_id = c.org_id
UNION ALL
SELECT l.org_id, NULL, l.target_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL
FROM (SELECT s.org_id, s.target_id FROM seen AS s WHERE s.nth = :targets_max::integer) AS l

-- name: create_endpoint
-- Register an endpoint, after lock_endpoints; no row if the organisation already has :endpoints_max. Safe to
-- repeat after a lost answer.
--
-- :pulled  whether it is pulled   :endpoints_max  endpoints at most
INSERT INTO webhook_targets AS t (org_id, id, url, events, description, pulled)
SELECT :org, :endpoint::uuid, :url::text, :events::text[], :description::text, :pulled::boolean
WHERE (
    SELECT count(*)
    FROM webhook_targets AS known
    WHERE known.org_id = :org AND known.events IS NOT NULL AND known.id <> :endpoint
) < :endpoints_max::integer
ON CONFLICT (org_id, id) DO UPDATE SET used_at = now()
RETURNING /* include webhooks/endpoint_columns */

-- name: delete_endpoint
-- Delete an endpoint: it gets no more deliveries, and end_disabled ends the pending ones. Its row
-- stays for as long as the log refers to it.
UPDATE webhook_targets AS t
SET events = NULL, disabled_at = coalesce(t.disabled_at, now()), deleted_at = now(), used_at = now()
WHERE t.org_id = :org AND t.id = :endpoint AND t.events IS NOT NULL
RETURNING t.id

-- name: delete_unpulled
-- Delete pulled endpoints that nobody pulled from for :seconds_max seconds, as delete_endpoint does: their
-- reader has ended.
UPDATE webhook_targets AS t
SET events = NULL, disabled_at = coalesce(t.disabled_at, now()), deleted_at = now(), used_at = now()
WHERE t.pulled AND t.events IS NOT NULL
  AND coalesce(t.pulled_at, t.created_at) < now() - :seconds_max::double precision * interval '1 second'
RETURNING t.id

-- name: end_disabled
-- End pending deliveries to receivers that answered 410 and to deleted endpoints. They stay in the log;
-- those to the former can be sent again.
WITH unwanted AS MATERIALIZED (
    SELECT d.org_id, d.id, t.deleted_at IS NOT NULL AS is_deleted
    FROM webhook_targets AS t
    CROSS JOIN LATERAL (
        SELECT w.org_id, w.id
        FROM webhook_deliveries AS w
        WHERE w.status = 'pending' AND w.org_id = t.org_id AND w.target_id = t.id
          AND (w.lease IS NULL OR w.due_at <= now())
        LIMIT :rows_max::integer
    ) AS d
    WHERE t.disabled_at IS NOT NULL
    LIMIT :rows_max::integer
)
UPDATE webhook_deliveries AS d
SET status = 'disabled', lease = NULL, due_at = NULL, ended_at = now(),
    last_error = CASE
        WHEN u.is_deleted THEN 'the endpoint was deleted'
        ELSE coalesce(d.last_error, 'the receiver answered 410 before')
    END
FROM unwanted AS u
WHERE d.org_id = u.org_id AND d.id = u.id AND d.status = 'pending'
  AND (d.lease IS NULL OR d.due_at <= now())
RETURNING d.id

-- name: endpoint_columns
-- What a reader sees of an endpoint, in the order of EndpointView.
t.org_id, t.id, t.url, t.events, t.description, t.pulled, t.generation, t.failures, t.created_at,
       t.rotated_at, t.paused_at, t.disabled_at, t.pulled_at

-- name: endpoint_secret
-- The secret of an endpoint, as secret returns that of an organisation.
--
-- :previous_seconds  seconds that the previous one stays valid after a rotation
SELECT t.generation, t.rotated_at + :previous_seconds::double precision * interval '1 second' AS previous_until,
       t.rotated_at + :previous_seconds::double precision * interval '1 second' > now() AS previous_signs
FROM webhook_targets AS t
WHERE t.org_id = :org AND t.id = :endpoint AND t.events IS NOT NULL

-- name: get
-- One delivery.
SELECT /* include webhooks/view_columns */
FROM webhook_deliveries AS d
LEFT JOIN webhook_targets AS t ON t.org_id = d.org_id AND t.id = d.target_id
WHERE d.org_id = :org AND d.id = :delivery

-- name: held
-- How often deliveries were tried that a puller still holds.
--
-- :leases  lease of each
SELECT d.id, d.tries
FROM unnest(:deliveries::uuid[], :leases::uuid[]) AS h (id, lease)
JOIN webhook_deliveries AS d ON d.org_id = :org AND d.id = h.id AND d.lease = h.lease
WHERE d.target_id = :endpoint

-- name: list
-- An organisation's deliveries, newest first. Their ids begin with the time of their creation, so that a
-- range of times is a range of ids.
--
-- Sent with custom plans, so that filters which are NULL are not part of the plan.
--
-- :before  older than this id, or NULL   :subject  of this job or group, or NULL
-- :status  status, or NULL   :target  to this target, or NULL   :since  from this id on, or NULL
SELECT /* include webhooks/view_columns */
FROM webhook_deliveries AS d
LEFT JOIN webhook_targets AS t ON t.org_id = d.org_id AND t.id = d.target_id
WHERE d.org_id = :org AND (:before::uuid IS NULL OR d.id < :before)
  AND (:subject::uuid IS NULL OR d.subject_id = :subject)
  AND (:status::text IS NULL OR d.status = :status)
  AND (:target::uuid IS NULL OR d.target_id = :target)
  AND (:since::uuid IS NULL OR d.id >= :since)
ORDER BY d.id DESC
LIMIT :limit::integer

-- name: list_endpoints
-- An organisation's endpoints, or one of them, oldest first: there are few.
--
-- :endpoint  id, or NULL
SELECT /* include webhooks/endpoint_columns */
FROM webhook_targets AS t
WHERE t.org_id = :org AND t.events IS NOT NULL AND (:endpoint::uuid IS NULL OR t.id = :endpoint)
ORDER BY t.id

-- name: lock_claims
-- Serialise claims of deliveries, until the transaction ends: the next claim then counts what this one
-- took. A statement of its own, because a statement's snapshot dates from its start.
SELECT pg_advisory_xact_lock(:lock)

-- name: lock_endpoints
-- Serialise additions to an organisation's endpoints, until the transaction ends: they are counted.
SELECT pg_advisory_xact_lock(:lock::integer, hashtext(:org))

-- name: mark
-- Record the outcomes of posts: delivered, to be retried, exhausted or disabled. Fenced by the lease: a
-- delivery that has ended meanwhile, or was sent again, is left as it is.
--
-- Counts a target's failures; a success resets them. Records its Retry-After. Targets are locked in the
-- order of their key: two of these that meet wait, and do not deadlock.
--
-- :asked_seconds  seconds of the target's Retry-After, or NULL
WITH marked AS (
    UPDATE webhook_deliveries AS d
    SET status = s.status, lease = NULL, tries = least(d.tries + 1, 32767),
        last_try_at = now(), last_status_code = s.status_code, last_error = s.error,
        due_at = CASE
            WHEN s.status = 'pending' THEN now() + s.delay_seconds * interval '1 second'
        END,
        ended_at = CASE WHEN s.status <> 'pending' THEN now() END
    FROM unnest(
        :orgs::text[], :deliveries::uuid[], :leases::uuid[], :statuses::text[], :status_codes::integer[], :errors::text[],
        :delay_seconds::double precision[], :asked_seconds::double precision[]
    ) AS s (org_id, id, lease, status, status_code, error, delay_seconds, peace_seconds)
    WHERE d.org_id = s.org_id AND d.id = s.id AND d.lease = s.lease
    RETURNING d.org_id, d.id, d.target_id, d.status, s.peace_seconds
),
by_target AS MATERIALIZED (
    SELECT m.org_id, m.target_id, bool_or(m.status = 'delivered') AS works,
           bool_or(m.status = 'disabled') AS gone, max(m.peace_seconds) AS peace_seconds
    FROM marked AS m
    GROUP BY m.org_id, m.target_id
),
locked AS MATERIALIZED (
    SELECT t.org_id, t.id, b.works, b.gone, b.peace_seconds
    FROM by_target AS b
    JOIN webhook_targets AS t ON t.org_id = b.org_id AND t.id = b.target_id
    WHERE NOT b.works OR b.gone OR t.failures > 0
    ORDER BY t.org_id, t.id
    FOR NO KEY UPDATE OF t
),
learnt AS (
    UPDATE webhook_targets AS t
    SET failures = CASE WHEN l.works THEN 0 ELSE least(t.failures + 1, 32767) END,
        not_before = greatest(
            t.not_before, now() + l.peace_seconds * interval '1 second'
        ),
        disabled_at = CASE WHEN l.gone THEN now() ELSE t.disabled_at END
    FROM locked AS l
    WHERE t.org_id = l.org_id AND t.id = l.id
)
SELECT m.id FROM marked AS m

-- name: next_due
-- Seconds until the next delivery is due, below 0 if one is, or NULL.
SELECT extract(epoch FROM min(d.due_at) - clock_timestamp())::double precision
FROM webhook_deliveries AS d
WHERE d.status = 'pending'

-- name: overdue
-- For how many seconds the oldest due delivery has been due, or NULL if none is. Deliveries that cannot
-- be posted are left out: to receivers that are paused, pulled, or have a Retry-After. Reads the first
-- thousand that are due.
SELECT extract(epoch FROM clock_timestamp() - min(d.due_at))::double precision
FROM (
    SELECT w.org_id, w.target_id, w.due_at
    FROM webhook_deliveries AS w
    WHERE w.status = 'pending' AND w.due_at <= now()
    ORDER BY w.due_at
    LIMIT 1000
) AS d
JOIN webhook_targets AS t ON t.org_id = d.org_id AND t.id = d.target_id
WHERE t.paused_at IS NULL AND t.disabled_at IS NULL AND NOT t.pulled
  AND (t.not_before IS NULL OR t.not_before <= now())

-- name: pause_endpoint
-- Pause an endpoint: its deliveries are written, and wait.
UPDATE webhook_targets AS t
SET paused_at = coalesce(t.paused_at, now())
WHERE t.org_id = :org AND t.id = :endpoint AND t.events IS NOT NULL
RETURNING /* include webhooks/endpoint_columns */

-- name: previous_facts
-- The facts of the previous delivery to this target about this subject, if there was one.
--
-- :delivery  id of a delivery
SELECT d.facts::text AS facts
FROM webhook_deliveries AS d
WHERE d.org_id = :org AND d.subject_id = :subject AND d.target_id = :target AND d.id < :delivery
ORDER BY d.id DESC
LIMIT 1

-- name: prune
-- Delete expired deliveries, and targets that nothing refers to any more. A target that something does
-- refer to, or that is an endpoint, is checked again after being unused for as long once more.
--
-- A statement that refers to a target meanwhile does not lose it: it found the target young, or has set
-- used_at, and then the target is skipped or no longer old here (webhooks/target_upsert).
--
-- :log_seconds  seconds that the log is kept   :unused_seconds  seconds that an unused target is kept
WITH old AS MATERIALIZED (
    SELECT d.org_id, d.id
    FROM webhook_deliveries AS d
    WHERE d.ended_at IS NOT NULL
      AND d.ended_at <= now() - :log_seconds::double precision * interval '1 second'
    ORDER BY d.ended_at
    LIMIT :rows_max::integer
    FOR UPDATE SKIP LOCKED
),
deliveries_gone AS (
    DELETE FROM webhook_deliveries AS d
    USING old AS o
    WHERE d.org_id = o.org_id AND d.id = o.id
    RETURNING d.id
),
aged AS MATERIALIZED (
    SELECT t.org_id, t.id, t.events IS NOT NULL AS is_endpoint
    FROM webhook_targets AS t
    WHERE t.used_at <= now() - :unused_seconds::double precision * interval '1 second'
    ORDER BY t.used_at
    LIMIT :rows_max::integer
    FOR UPDATE SKIP LOCKED
),
judged AS MATERIALIZED (
    SELECT a.org_id, a.id,
           a.is_endpoint
           OR EXISTS (
               SELECT FROM webhook_deliveries AS d WHERE d.org_id = a.org_id AND d.target_id = a.id
           )
           OR EXISTS (
               SELECT FROM job_webhooks AS w WHERE w.org_id = a.org_id AND w.target_id = a.id
           )
           OR EXISTS (
               SELECT FROM runs AS r WHERE r.org_id = a.org_id AND r.webhook_target = a.id
           ) AS wanted
    FROM aged AS a
),
kept AS (
    UPDATE webhook_targets AS t
    SET used_at = now()
    FROM judged AS j
    WHERE j.wanted AND t.org_id = j.org_id AND t.id = j.id
),
targets_gone AS (
    DELETE FROM webhook_targets AS t
    USING judged AS j
    WHERE NOT j.wanted AND t.org_id = j.org_id AND t.id = j.id
)
SELECT (SELECT count(*) FROM deliveries_gone)::integer AS deliveries,
       (SELECT count(*) FROM judged)::integer AS targets

-- name: pull once
-- Claim due deliveries of a pulled endpoint, each under a lease, as claim does for posted ones:
-- oldest first, and those about a subject in order. Records from time to time that the endpoint was
-- pulled: a waiting reader asks twice a second, and an empty answer should cost no write.
--
-- One row without an id if nothing is due; none if there is no such endpoint.
--
-- :lease_seconds  seconds that the lease lasts
--
-- Once: a repeat after a lost answer would need another lease.
WITH endpoint AS MATERIALIZED (
    SELECT t.org_id, t.id, t.url, t.failures, t.generation, t.rotated_at,
           t.paused_at IS NULL AND t.disabled_at IS NULL
           AND (t.not_before IS NULL OR t.not_before <= now()) AS wants_some
    FROM webhook_targets AS t
    WHERE t.org_id = :org AND t.id = :endpoint AND t.events IS NOT NULL AND t.pulled
),
asked AS (
    UPDATE webhook_targets AS t
    SET pulled_at = now()
    FROM endpoint AS e
    WHERE t.org_id = e.org_id AND t.id = e.id
      AND (t.pulled_at IS NULL OR t.pulled_at < now() - interval '15 seconds')
),
due AS MATERIALIZED (
    SELECT d.org_id, d.id
    FROM webhook_deliveries AS d
    WHERE d.status = 'pending' AND d.org_id = :org AND d.target_id = :endpoint AND d.due_at <= now()
      AND (SELECT e.wants_some FROM endpoint AS e)
      AND NOT EXISTS (
          SELECT
          FROM webhook_deliveries AS e
          WHERE e.status = 'pending' AND e.tries = 0 AND e.org_id = d.org_id
            AND e.target_id = d.target_id AND e.subject_id = d.subject_id AND e.id < d.id
      )
    ORDER BY d.due_at, d.id
    LIMIT :rows_max::integer
    FOR UPDATE OF d SKIP LOCKED
),
taken AS (
    UPDATE webhook_deliveries AS d
    SET lease = :lease::uuid, due_at = now() + :lease_seconds::double precision * interval '1 second'
    FROM due
    WHERE d.org_id = due.org_id AND d.id = due.id
    RETURNING d.id, d.subject_kind, d.subject_id, d.run_id, d.event, d.facts::text AS facts, d.tries,
              d.created_at, d.last_try_at
)
SELECT e.org_id, k.id, e.id AS target_id, e.url, k.subject_kind, k.subject_id, k.run_id, k.event, k.facts,
       k.tries, k.created_at, e.failures > 0 AS failing, true AS to_endpoint, e.generation,
       e.rotated_at, clock_timestamp() AS claimed_at,
       (
           SELECT j.traceparent
           FROM jobs AS j
           WHERE k.subject_kind = 'job' AND j.org_id = e.org_id AND j.id = k.subject_id
       ) AS traceparent,
       k.last_try_at IS NULL AS is_first_try
FROM endpoint AS e
LEFT JOIN taken AS k ON true
ORDER BY k.created_at, k.id

-- name: receivers
-- The receivers of a state change `c`, and the form of each message: included by
-- write_deliveries_from_moved, which describes `c`.
--
-- The targets that the job names get its end (1), every state change (2), or those that its caller is
-- shown, its phases (4). A claim, a start, a return to the queue from a worker and an end are phases;
-- becoming due and a request to cancel are not. A claim that is not shown (jobs.webhook 5) is no
-- phase, and neither is its return to the queue before the start.
-- The target that a run names gets its tasks' failures (3).
-- The organisation's endpoints get the events that they subscribed to, whatever the job says; of tasks
-- only failures, and nothing of internal jobs (0), which nobody submitted. Those that subscribed to
-- alerts are sent a job that failed with no attempt left, as reports/note_attempts records it.
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

-- name: renew
-- Extend the leases of posts in flight. Fenced by the lease, as webhooks/mark.
--
-- :lease_seconds  seconds that the lease lasts from now on
UPDATE webhook_deliveries AS d
SET due_at = now() + :lease_seconds::double precision * interval '1 second'
FROM unnest(:orgs::text[], :deliveries::uuid[], :leases::uuid[]) AS h (org_id, id, lease)
WHERE d.org_id = h.org_id AND d.id = h.id AND d.lease = h.lease
RETURNING d.id

-- name: replay
-- Send a delivery again: at once, under its id, with the whole retry schedule. One that is being posted
-- right now, or is to a deleted endpoint, is left as it is. A target that had answered 410 is enabled
-- again, unless it was deleted meanwhile.
WITH target AS MATERIALIZED (
    SELECT t.org_id, t.id
    FROM webhook_deliveries AS d
    JOIN webhook_targets AS t ON t.org_id = d.org_id AND t.id = d.target_id
    WHERE d.org_id = :org AND d.id = :delivery AND t.deleted_at IS NULL
),
again AS (
    UPDATE webhook_deliveries AS d
    SET status = 'pending', tries = 0, lease = NULL, due_at = now(), ended_at = NULL
    FROM target AS t
    WHERE d.org_id = :org AND d.id = :delivery AND (d.lease IS NULL OR d.due_at <= now())
    RETURNING d.org_id, d.target_id
)
UPDATE webhook_targets AS t
SET disabled_at = NULL, used_at = now()
FROM again AS a
WHERE t.org_id = a.org_id AND t.id = a.target_id AND t.deleted_at IS NULL

-- name: replay_range
-- Send deliveries again that were created within a range and have one of these statuses, oldest first,
-- as replay does with one. Of pending ones: those that have failed and wait for a retry, not those
-- that were never tried or are being posted. Returns their ids; the next call continues after the last.
--
-- :target  endpoint, or NULL for all targets   :since  from this id on
-- :until  before this id, or NULL
WITH target AS MATERIALIZED (
    SELECT d.org_id, d.id, d.target_id
    FROM webhook_deliveries AS d
    JOIN webhook_targets AS t ON t.org_id = d.org_id AND t.id = d.target_id
    WHERE d.org_id = :org AND (:target::uuid IS NULL OR d.target_id = :target)
      AND d.id >= :since::uuid AND (:until::uuid IS NULL OR d.id < :until)
      AND d.status = ANY (:statuses::text[]) AND t.deleted_at IS NULL
      AND (
          d.status <> 'pending'
          OR d.tries > 0 AND (d.lease IS NULL OR d.due_at <= now())
      )
    ORDER BY d.id
    LIMIT :limit::integer
    FOR UPDATE OF d SKIP LOCKED
),
again AS (
    UPDATE webhook_deliveries AS d
    SET status = 'pending', tries = 0, lease = NULL, due_at = now(), ended_at = NULL
    FROM target AS t
    WHERE d.org_id = t.org_id AND d.id = t.id
    RETURNING d.id
),
wanted AS MATERIALIZED (
    SELECT t.org_id, t.id
    FROM webhook_targets AS t
    WHERE t.org_id = :org AND t.disabled_at IS NOT NULL AND t.deleted_at IS NULL
      AND t.id IN (SELECT r.target_id FROM target AS r)
    ORDER BY t.org_id, t.id
    FOR NO KEY UPDATE
),
enabled AS (
    UPDATE webhook_targets AS t
    SET disabled_at = NULL, used_at = now()
    FROM wanted AS w
    WHERE t.org_id = w.org_id AND t.id = w.id
)
SELECT a.id FROM again AS a ORDER BY a.id

-- name: resume_endpoint
-- Resume an endpoint, whether it was paused or answered 410. Its waiting deliveries are due; those that
-- ended because of the 410 can be sent again.
UPDATE webhook_targets AS t
SET paused_at = NULL, disabled_at = NULL, not_before = NULL, failures = 0
WHERE t.org_id = :org AND t.id = :endpoint AND t.events IS NOT NULL
RETURNING /* include webhooks/endpoint_columns */

-- name: rotate
-- Give an organisation its next secret, if its current one is still :generation: repeated after a lost answer, or
-- sent by two at once, it changes the secret once.
--
-- :generation  the current generation
INSERT INTO webhook_secrets AS k (org_id, generation, rotated_at)
VALUES (:org, :generation::integer + 1, now())
ON CONFLICT (org_id) DO UPDATE
SET generation = excluded.generation, rotated_at = now()
WHERE k.generation = :generation::integer

-- name: rotate_endpoint
-- Give an endpoint its next secret, if its current one is still :generation, as rotate does.
--
-- :generation  the current generation
UPDATE webhook_targets
SET generation = generation + 1, rotated_at = now()
WHERE org_id = :org AND id = :endpoint AND events IS NOT NULL AND generation = :generation::integer

-- name: secret
-- The secret of an organisation, and until when the previous one is valid, if it is.   :org org
--
-- :previous_seconds  seconds that it is valid after a rotation
SELECT k.generation, k.rotated_at + :previous_seconds::double precision * interval '1 second' AS previous_until,
       k.rotated_at + :previous_seconds::double precision * interval '1 second' > now() AS previous_signs
FROM webhook_secrets AS k
WHERE k.org_id = :org

-- name: submit
-- jobs/submit for jobs of which some have webhooks: writes those in the same statement.
WITH /* include jobs/created */,
bound AS (
    /* include webhooks/add_job_webhooks */
),
named AS (
    /* include webhooks/submitted_targets */
),
enlisted AS (
    /* include webhooks/target_upsert */
)
SELECT c.id, c.is_staged AS staged FROM created AS c

-- name: submitted_targets
-- The targets of submissions, :orgs and :options as in jobs/submit: for webhooks/target_upsert.
SELECT s.org_id, w.target AS id, w.url
    FROM unnest(:orgs::text[], :options::jsonb[]) AS s (org_id, options)
    CROSS JOIN LATERAL jsonb_to_recordset(s.options -> 'webhooks') AS w (target uuid, url text)

-- name: target_upsert
-- Make sure that targets exist, and stay: included by the statements that refer to them, from their
-- `named` (org_id, id, url).
--
-- A target that was used within the hour is left alone: it is deleted only after days, and a row that
-- many submissions touched would make them wait for each other. A target that answered 410 is enabled
-- again. In the order of the key: two of these that meet wait, and do not deadlock.
INSERT INTO webhook_targets AS t (org_id, id, url)
    SELECT DISTINCT ON (n.org_id, n.id) n.org_id, n.id, n.url
    FROM named AS n
    WHERE NOT EXISTS (
        SELECT
        FROM webhook_targets AS known
        WHERE known.org_id = n.org_id AND known.id = n.id AND known.disabled_at IS NULL
          AND known.used_at > now() - interval '1 hour'
    )
    ORDER BY n.org_id, n.id
    ON CONFLICT (org_id, id) DO UPDATE
    SET used_at = now(), disabled_at = NULL,
        failures = CASE WHEN t.disabled_at IS NULL THEN t.failures ELSE 0 END

-- name: test_endpoint
-- Write a test message to an endpoint. Repeated after a lost answer, it is the same message.
--
-- :delivery  id of the delivery
INSERT INTO webhook_deliveries AS d (
    org_id, id, target_id, subject_kind, subject_id, event, facts
)
SELECT t.org_id, :delivery::uuid, t.id, 'test', t.id, :event::text, '{"as": "endpoint"}'
FROM webhook_targets AS t
WHERE t.org_id = :org AND t.id = :endpoint AND t.events IS NOT NULL
ON CONFLICT (org_id, id) DO UPDATE SET event = d.event
RETURNING d.id

-- name: upsert_targets
-- Make sure that these targets exist: for rows that refer to them, such as a run's.
WITH named AS (
    SELECT n.org_id, n.id, n.url
    FROM unnest(:orgs::text[], :targets::uuid[], :urls::text[]) AS n (org_id, id, url)
),
enlisted AS (
    /* include webhooks/target_upsert */
)
SELECT

-- name: view_columns
-- What a reader sees of a delivery: included by list and get.
d.org_id, d.id, d.subject_kind, d.subject_id, d.run_id, d.event, nullif(t.url, '') AS url,
       CASE WHEN t.events IS NOT NULL OR t.deleted_at IS NOT NULL THEN t.id END AS endpoint,
       d.status = 'pending' AND t.paused_at IS NOT NULL AS paused, d.status, d.tries,
       d.last_status_code, d.last_error, d.last_try_at, d.due_at, d.created_at, d.ended_at

-- name: write_deliveries_from_moved
-- The outbox: writes a webhook delivery for each receiver of a state change. Included by every statement
-- that changes states, from its `moved`, so that the delivery commits with the state change. A statement
-- that moves jobs in two ways puts both into `moved`: one INSERT costs less than two.
--
-- `moved` gives org_id, id, state, previous (the state before), endpoint, flow, attempts, run_id,
-- webhook, error_code. A task's flow is left out: it may end in a word of its payload, which is deleted
-- with its group. Without any webhook this reads `moved`, and probes an empty index once.
INSERT INTO webhook_deliveries (
        org_id, target_id, subject_kind, subject_id, run_id, event, facts
    )
    SELECT c.org_id, notified.target_id, notified.kind, c.id, c.run_id, notified.event,
           jsonb_strip_nulls(jsonb_build_object(
               'state', c.state, 'previous', c.previous, 'attempt', c.attempts,
               'error_code', c.error_code, 'endpoint', c.endpoint,
               'flow', CASE WHEN c.run_id IS NULL THEN c.flow END, 'as', notified.sent_as
           ))
    FROM moved AS c
    CROSS JOIN LATERAL (
        /* include webhooks/receivers */
    ) AS notified
    WHERE c.webhook > 0
       OR (SELECT EXISTS (SELECT FROM webhook_targets AS known WHERE known.events IS NOT NULL))
