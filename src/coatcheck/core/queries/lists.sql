-- name: list
-- An organisation's jobs, newest first, a page at a time: $2 is the last id of the previous page.
-- Tasks are not listed: page_filter says why the ids have bounds.
-- Results are left out: a page of them could have any size.
SELECT /* include jobs/view_columns */, NULL::bytea AS result
FROM jobs AS j
WHERE j.org_id = $1 AND j.run_id IS NULL AND j.id >= '01000000-0000-0000-0000-000000000000'
  AND j.id < $2::uuid
  AND ($3::text[] IS NULL OR j.state::text = ANY ($3))
  AND ($4::text IS NULL OR j.endpoint = $4)
  AND ($5::text IS NULL OR j.lane::text = $5)
ORDER BY j.id DESC
LIMIT $6

-- name: page
-- A page of an organisation's jobs, newest first: read backwards along the primary key until it is
-- full. Results are left out: a page of them could have any size.
--
-- $1-$6 see page_filter   $7 older than this id   $8 rows to skip   $9 rows at most
SELECT /* include jobs/view_columns */, NULL::bytea AS result
FROM jobs AS j
WHERE /* include lists/page_filter */
  AND j.id < $7::uuid
ORDER BY j.id DESC
OFFSET $8
LIMIT $9

-- name: page_total
-- How many jobs the list of page has, counted up to $7.
--
-- $1-$6 see page_filter   $7 bound   $8 older than this id
SELECT count(*)
FROM (
    SELECT
    FROM jobs AS j
    WHERE /* include lists/page_filter */
      AND j.id < $8::uuid
    LIMIT $7
) AS counted

-- name: page_filter
-- The filter of a page of jobs: included by page and page_total, which share $1 to $6.
--
-- Tasks are not listed. Their ids are hashes, spread over all values; those of other jobs begin with a
-- time. So a list has bounds on ids, between which there is hardly a task to skip: the id of the year
-- 2004, here, and that of tomorrow, by the caller.
--
-- Sent with custom plans, so that filters which are NULL are not part of the plan.
--
-- $1 org   $2 endpoints   $3 prefix of the flow   $4 states   $5 lane
-- $6 owner: theirs, and what anyone may read
j.org_id = $1 AND j.run_id IS NULL AND j.id >= '01000000-0000-0000-0000-000000000000'
  AND ($2::text[] IS NULL OR j.endpoint = ANY ($2))
  AND ($3::text IS NULL OR starts_with(j.flow, $3))
  AND ($4::text[] IS NULL OR j.state = ANY ($4::text[]::job_state[]))
  AND ($5::text IS NULL OR j.lane = $5::text::job_lane)
  AND ($6::text IS NULL OR j.owner IN ('*', $6))

-- name: page_of_services
-- A page of the jobs of some services, newest first: the jobs of page, for when that would read
-- many jobs of others to find a few. Results are left out: a page of them could have any size.
--
-- $1-$9 see page_candidates; $9 is $10 and $11 together   $10 rows to skip   $11 rows at most
WITH RECURSIVE /* include lists/page_candidates */,
page AS MATERIALIZED (
    SELECT c.id FROM candidates AS c ORDER BY c.id DESC OFFSET $10 LIMIT $11
)
SELECT /* include jobs/view_columns */, NULL::bytea AS result
FROM page AS p
CROSS JOIN LATERAL (SELECT * FROM jobs AS j WHERE j.org_id = $1 AND j.id = p.id) AS j
ORDER BY j.id DESC

-- name: page_of_services_total
-- How many jobs the list of page_of_services has, counted up to $9.
--
-- $1-$9 see page_candidates
WITH RECURSIVE /* include lists/page_candidates */
SELECT count(*) FROM (SELECT FROM candidates LIMIT $9) AS counted

-- name: page_candidates
-- The ids of the jobs of some services: common table expressions for page_of_services and
-- page_of_services_total, which share $1 to $9. Ended jobs are found by jobs_ended, at most $9 of
-- each service, owner and state; live jobs, all of them, by the indexes of live states.
--
-- With an owner: their jobs and those that anyone may read. Without: everybody's jobs. The owners are
-- then found by a loose scan, one probe each; the caller knows that they are few (owners).
--
-- Sent with custom plans, so that filters which are NULL are not part of the plan.
--
-- $1 org   $2 endpoints   $3 prefix of the flow   $4 states   $5 lane
-- $6 owner: theirs, and what anyone may read   $7 older than this id   $8 services   $9 rows at most
owners AS (
    SELECT s.service, hashtextextended(s.service || $1, 0) AS service_hash,
           -2147483649 AS owner_hash
    FROM unnest($8::text[]) AS s (service)
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
    WHERE $6::text IS NULL
),
wanted AS (
    SELECT o.service, o.service_hash, o.owner_hash
    FROM owners AS o
    WHERE $6 IS NULL AND o.owner_hash > -2147483649
    UNION
    SELECT o.service, o.service_hash, whose.owner_hash
    FROM owners AS o
    CROSS JOIN (
        SELECT hashtext('*')::bigint UNION SELECT hashtext($6)::bigint
    ) AS whose (owner_hash)
    WHERE $6 IS NOT NULL
),
candidates AS (
    SELECT ended.id
    FROM wanted
    CROSS JOIN (
        VALUES ('completed'::job_state), ('failed'::job_state), ('cancelled'::job_state)
    ) AS f (state)
    CROSS JOIN LATERAL (
        SELECT j.id
        FROM jobs AS j
        WHERE /* include lists/of_service */
          AND hashtext(j.owner) = wanted.owner_hash AND j.state = f.state
          AND ($6 IS NULL OR j.owner IN ('*', $6))
          AND j.endpoint = ANY ($2::text[])
          AND ($3::text IS NULL OR starts_with(j.flow, $3))
          AND ($5::text IS NULL OR j.lane = $5::text::job_lane)
          AND ($7::uuid IS NULL OR j.id < $7)
        ORDER BY j.id DESC
        LIMIT $9
    ) AS ended
    WHERE $4::text[] IS NULL OR f.state::text = ANY ($4)
    UNION ALL
    SELECT j.id
    FROM jobs AS j
    WHERE j.state = 'queued' AND j.lane IN ('urgent', 'standard', 'bulk')
      AND j.endpoint = ANY ($2) AND j.org_id = $1 AND ($6 IS NULL OR j.owner IN ('*', $6))
      AND ($3 IS NULL OR starts_with(j.flow, $3))
      AND ($4 IS NULL OR 'queued' = ANY ($4))
      AND ($5 IS NULL OR j.lane = $5::text::job_lane)
      AND ($7 IS NULL OR j.id < $7) AND j.run_id IS NULL
    UNION ALL
    SELECT j.id
    FROM jobs AS j
    WHERE j.state IN ('staged', 'retrying')
      AND j.org_id = $1 AND j.endpoint = ANY ($2) AND ($6 IS NULL OR j.owner IN ('*', $6))
      AND ($3 IS NULL OR starts_with(j.flow, $3))
      AND ($4 IS NULL OR j.state = ANY ($4::text[]::job_state[]))
      AND ($5 IS NULL OR j.lane = $5::text::job_lane)
      AND ($7 IS NULL OR j.id < $7) AND j.run_id IS NULL
    UNION ALL
    SELECT j.id
    FROM jobs AS j
    -- All held jobs of everybody: there are at most as many as slots. IS TRUE keeps the planner
    -- from the primary key, by which it would read the organisation's history.
    WHERE j.lease IS NOT NULL
      AND (j.org_id = $1) IS TRUE AND j.endpoint = ANY ($2)
      AND ($6 IS NULL OR j.owner IN ('*', $6))
      AND ($3 IS NULL OR starts_with(j.flow, $3))
      AND ($4 IS NULL OR j.state = ANY ($4::text[]::job_state[]))
      AND ($5 IS NULL OR j.lane = $5::text::job_lane)
      AND ($7 IS NULL OR j.id < $7) AND j.run_id IS NULL
)

-- name: owners
-- How many owners have ended jobs of some services, counted up to $3 of each: a loose scan of
-- jobs_ended, one probe for each owner's hash.
--
-- $1 org   $2 services   $3 bound
WITH RECURSIVE owners AS (
    SELECT s.service, hashtextextended(s.service || $1, 0) AS service_hash,
           -2147483649 AS owner_hash, 0 AS number
    FROM unnest($2::text[]) AS s (service)
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
    WHERE wanted.number < $3::integer
)
SELECT count(*) FROM owners WHERE number > 0

-- name: of_service
-- Whether an ended job `j` is of the organisation $1 and of the service of `wanted`: included by the
-- statements that walk jobs_ended. IS TRUE keeps the planner from the primary key, by which it would
-- read the organisation's history.
hashtextextended(job_service(j.endpoint, j.flow) || j.org_id, 0) = wanted.service_hash
          AND j.state IN ('completed', 'failed', 'cancelled') AND j.run_id IS NULL
          AND (j.org_id = $1) IS TRUE
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
