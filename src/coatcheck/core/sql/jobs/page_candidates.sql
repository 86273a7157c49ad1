-- The ids of the jobs of some services: common table expressions for page_of_services.sql and
-- page_of_services_total.sql, which share $1 to $9. Ended jobs are found by jobs_ended, at most $9 of
-- each service, owner and state; live jobs, all of them, by the indexes of live states.
--
-- With an owner: their jobs and those that anyone may read. Without: everybody's jobs. The owners are
-- then found by a loose scan, one probe each; the caller knows that they are few (owners.sql).
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
        WHERE /* include jobs/of_service.sql */
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
        WHERE /* include jobs/of_service.sql */
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
