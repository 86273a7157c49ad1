-- name: every_list
-- The filters that every list of jobs has, whatever its product: included by their statements, in which `j`
-- is the job. The parameters are those of PageQuery in domain/listing.py, as are the bounds of ids: an id
-- begins with the time of its creation by the creator's clock. So bounds keep an hour's distance from the
-- times that a caller asks for, and created_at decides.
(:created_after::timestamptz IS NULL OR j.created_at >= :created_after)
      AND (:created_before::timestamptz IS NULL OR j.created_at < :created_before)

-- name: page
-- A page of an organisation's jobs, newest first: read backwards along the primary key until it is
-- full. Results are left out: a page of them could have any size.
--
-- :offset  rows to skip
SELECT /* include jobs/view_columns */, NULL::bytea AS result
FROM jobs AS j
WHERE j.org_id = :org AND /* include lists/page_filter */ AND /* include lists/in_states */
ORDER BY j.id DESC
OFFSET :offset
LIMIT :limit

-- name: page_total
-- How many jobs the list of page has, counted up to :rows_max.
SELECT count(*)
FROM (
    SELECT
    FROM jobs AS j
    WHERE j.org_id = :org AND /* include lists/page_filter */ AND /* include lists/in_states */
    LIMIT :rows_max
) AS counted

-- name: page_filter
-- The filter of a page of jobs, but for its organisation and its states: included by all statements that
-- find one.
--
-- Tasks are not listed. Their ids are hashes, spread over all values; those of other jobs begin with a
-- time. So a list has bounds on ids, between which there is hardly a task to skip: the id of the year
-- 2004, and that of tomorrow, unless the caller asks for less.
--
-- Sent with custom plans, so that filters which are NULL are not part of the plan.
--
-- :queue_key_prefix  prefix of the flow   :owner  owner: theirs, and what anyone may read
-- :before  older than this id   :above  not older than this one
j.run_id IS NULL AND j.id >= :above::uuid AND j.id < :before::uuid
      AND (:endpoints::text[] IS NULL OR j.endpoint = ANY (:endpoints))
      AND (:queue_key_prefix::text IS NULL OR starts_with(j.flow, :queue_key_prefix))
      AND (:lane::text IS NULL OR j.lane = :lane::text::job_lane)
      AND (:owner::text IS NULL OR j.owner IN ('*', :owner))
      AND /* include lists/every_list */

-- name: in_states
-- Whether a job `j` is in one of :states.
(:states::text[] IS NULL OR j.state = ANY (:states::text[]::job_state[]))

-- name: page_of_services
-- A page of the jobs of some services, newest first: the jobs of page, for when that would read
-- many jobs of others to find a few. Results are left out: a page of them could have any size.
--
-- :rows_max  is   :limit  together   :offset  rows to skip
WITH RECURSIVE /* include lists/page_candidates */,
page AS MATERIALIZED (
    SELECT c.id FROM candidates AS c ORDER BY c.id DESC OFFSET :offset LIMIT :limit
)
SELECT /* include jobs/view_columns */, NULL::bytea AS result
FROM page AS p
CROSS JOIN LATERAL (SELECT * FROM jobs AS j WHERE j.org_id = :org AND j.id = p.id) AS j
ORDER BY j.id DESC

-- name: page_of_services_total
-- How many jobs the list of page_of_services has, counted up to :rows_max.
WITH RECURSIVE /* include lists/page_candidates */
SELECT count(*) FROM (SELECT FROM candidates LIMIT :rows_max) AS counted

-- name: page_candidates
-- The ids of the jobs of some services: common table expressions for page_of_services and
-- page_of_services_total, which share :org to :rows_max. If completed jobs are wanted, a walk along
-- jobs_listed finds all, at most :rows_max of each service and owner. It passes jobs of other states; so if
-- completed jobs are not wanted, it is not made, and what was unsuccessful is found by unsuccessful_jobs, at
-- most :rows_max of each service, owner and state, and live jobs, all of them, by what names those.
--
-- With an owner: their jobs and those that anyone may read. Without: everybody's jobs. The owners are
-- then found by a loose scan, one probe each; the caller knows that they are few (owners).
owners AS (
    SELECT s.service, hashtextextended(s.service || :org, 0) AS service_hash,
           -2147483649 AS owner_hash
    FROM unnest(:services::text[]) AS s (service)
    UNION ALL
    SELECT wanted.service, wanted.service_hash, next.owner_hash
    FROM owners AS wanted
    CROSS JOIN LATERAL (
        SELECT hashtext(j.owner)::bigint AS owner_hash
        FROM jobs AS j
        WHERE /* include lists/of_service */
          AND hashtext(j.owner) > wanted.owner_hash
        ORDER BY hashtext(j.owner)
        LIMIT 1
    ) AS next
    WHERE :owner::text IS NULL
),
wanted AS (
    SELECT o.service, o.service_hash, o.owner_hash
    FROM owners AS o
    WHERE :owner IS NULL AND o.owner_hash > -2147483649
    UNION
    SELECT o.service, o.service_hash, whose.owner_hash
    FROM owners AS o
    CROSS JOIN (
        SELECT hashtext('*')::bigint UNION SELECT hashtext(:owner)::bigint
    ) AS whose (owner_hash)
    WHERE :owner IS NOT NULL
),
candidates AS (
    SELECT listed.id
    FROM wanted
    CROSS JOIN LATERAL (
        SELECT j.id
        FROM jobs AS j
        WHERE /* include lists/of_service */
          AND hashtext(j.owner) = wanted.owner_hash
          AND /* include lists/in_states */ AND /* include lists/page_filter */
        ORDER BY j.id DESC
        LIMIT :rows_max
    ) AS listed
    WHERE :states::text[] IS NULL OR 'completed' = ANY (:states)
    UNION ALL
    SELECT unsuccessful.id
    FROM wanted
    CROSS JOIN (VALUES ('failed'::job_state), ('cancelled'::job_state)) AS f (state)
    CROSS JOIN LATERAL (
        SELECT j.id
        FROM unsuccessful_jobs AS u
        CROSS JOIN LATERAL (
            SELECT * FROM jobs AS j WHERE j.org_id = :org AND j.id = u.id OFFSET 0
        ) AS j
        WHERE u.service_hash = wanted.service_hash AND u.owner_hash = wanted.owner_hash
          AND u.state = f.state AND u.org_id = :org
          AND u.id >= :above::uuid AND u.id < :before::uuid
          AND job_service(j.endpoint, j.flow) = wanted.service
          AND /* include lists/page_filter */
        ORDER BY u.id DESC
        LIMIT :rows_max
    ) AS unsuccessful
    WHERE NOT 'completed' = ANY (:states) AND f.state::text = ANY (:states)
    UNION ALL
    SELECT j.id
    FROM (SELECT q.org_id, unnest(q.ids) AS id FROM queue AS q WHERE q.org_id = :org) AS n
    /* include queue/job */
    WHERE NOT 'completed' = ANY (:states) AND 'queued' = ANY (:states)
      AND /* include lists/page_filter */
    UNION ALL
    SELECT j.id
    FROM postponed AS p
    /* include postponed/job */
    WHERE NOT 'completed' = ANY (:states) AND p.org_id = :org
      AND p.id >= :above::uuid AND p.id < :before::uuid
      AND /* include lists/in_states */ AND /* include lists/page_filter */
    UNION ALL
    SELECT j.id
    FROM held_jobs AS j
    WHERE NOT 'completed' = ANY (:states) AND j.org_id = :org
      AND /* include lists/in_states */ AND /* include lists/page_filter */
)

-- name: owners
-- How many owners have jobs of some services, counted up to :count_max of each: a loose scan of
-- jobs_listed, one probe for each owner's hash.
--
-- :count_max  bound
WITH RECURSIVE owners AS (
    SELECT s.service, hashtextextended(s.service || :org, 0) AS service_hash,
           -2147483649 AS owner_hash, 0 AS number
    FROM unnest(:services::text[]) AS s (service)
    UNION ALL
    SELECT wanted.service, wanted.service_hash, next.owner_hash, wanted.number + 1
    FROM owners AS wanted
    CROSS JOIN LATERAL (
        SELECT hashtext(j.owner)::bigint AS owner_hash
        FROM jobs AS j
        WHERE /* include lists/of_service */
          AND hashtext(j.owner) > wanted.owner_hash
        ORDER BY hashtext(j.owner)
        LIMIT 1
    ) AS next
    WHERE wanted.number < :count_max::integer
)
SELECT count(*) FROM owners WHERE number > 0

-- name: of_service
-- Whether a job `j` is of the organisation :org and of the service of `wanted`: included by the statements
-- that walk jobs_listed. IS TRUE keeps the planner from the primary key, by which it would
-- read the organisation's history.
hashtextextended(job_service(j.endpoint, j.flow) || j.org_id, 0) = wanted.service_hash
          AND j.run_id IS NULL AND (j.org_id = :org) IS TRUE
          AND job_service(j.endpoint, j.flow) = wanted.service

-- name: horizon
-- The window of a search for changes: included by the statements that search. `seen` is the snapshot
-- at the start of the search, which on its first page is this statement's own.
--
-- After the snapshot :since, or NULL; up to :until, or NULL for now.
SELECT coalesce(:until::text::pg_snapshot, pg_current_snapshot()) AS seen,
       :since::text::pg_snapshot AS known,
       pg_snapshot_xmin(:since::text::pg_snapshot)::text::bigint AS known_from,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_id,
       -- The database is behind the given snapshot, for instance after a restore: report everything.
       pg_snapshot_xmax(:since::text::pg_snapshot) > pg_snapshot_xmax(pg_current_snapshot()) AS is_foreign

-- name: row_transaction
-- The transaction that wrote the current version of a job's row, as a number that never wraps around:
-- included by the statements that search for changes. A row holds only the lower half of it; it was
-- written before next_id of `horizon`, and less than one wrap of the lower half ago, because no job is
-- kept that long.
(h.next_id - ((h.next_id - j.xmin::text::bigint) & 4294967295))

-- name: is_changed
-- Whether a row of `walked` counts as changed: a transaction wrote it that `known` does not see and
-- `seen` does. Without `known`, whether the job has not ended. Included by the statements that search
-- for changes; `horizon` is h, `walked` is w.
CASE WHEN h.known IS NULL THEN w.state NOT IN ('completed', 'failed', 'cancelled')
     ELSE h.is_foreign
          OR (w.written_by >= h.known_from
              AND NOT pg_visible_in_snapshot(w.written_by::text::xid8, h.known))
END
AND pg_visible_in_snapshot(w.written_by::text::xid8, h.seen)
