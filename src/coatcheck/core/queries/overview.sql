-- name: flows
-- The flows that have queued jobs, and how many: of one organisation, or of all.
--
-- A loose scan of queue_order, like the claim's (jobs/ready_flows): each flow is found by one index
-- probe, and counted no further than its part of :count_max. Reads live rows only, and no more than a bound:
-- neither the history nor a queue of millions shows.
--
-- With an organisation, the scan goes over the lanes and endpoints that have queued jobs, and then over
-- the organisation's flows of each.
--
-- :org  org, or '*' for all of them   :flows_max  flows at most
-- :of_a_flow_min  jobs of a flow to count at least   :count_max  jobs to count in all
WITH RECURSIVE queues AS (
    (
        SELECT q.lane, q.endpoint
        FROM queue AS q
        ORDER BY q.lane, q.endpoint
        LIMIT 1
    )
    UNION ALL
    SELECT n.lane, n.endpoint
    FROM queues AS d
    CROSS JOIN LATERAL (
        SELECT q.lane, q.endpoint
        FROM queue AS q
        WHERE (q.lane, q.endpoint) > (d.lane, d.endpoint)
        ORDER BY q.lane, q.endpoint
        LIMIT 1
    ) AS n
),
places AS MATERIALIZED (
    SELECT d.lane, d.endpoint, f.org_id, f.flow
    FROM queues AS d
    CROSS JOIN LATERAL (
        WITH RECURSIVE found AS (
            (
                SELECT n.org_id, n.flow
                FROM (
                    SELECT q.org_id, q.flow
                    FROM queue AS q
                    WHERE q.lane = d.lane AND q.endpoint = d.endpoint
                      AND q.org_id >= CASE WHEN :org = '*' THEN '' ELSE :org END
                    ORDER BY q.org_id, q.flow
                    LIMIT 1
                ) AS n
                WHERE n.org_id = :org OR :org = '*'
            )
            UNION ALL
            SELECT n.org_id, n.flow
            FROM found AS f
            CROSS JOIN LATERAL (
                SELECT q.org_id, q.flow
                FROM queue AS q
                WHERE q.lane = d.lane AND q.endpoint = d.endpoint
                  AND (q.org_id, q.flow) > (f.org_id, f.flow)
                ORDER BY q.org_id, q.flow
                LIMIT 1
            ) AS n
            WHERE n.org_id = :org OR :org = '*'
        )
        SELECT found.org_id, found.flow FROM found LIMIT :flows_max::integer
    ) AS f
    LIMIT :flows_max::integer
)
SELECT p.org_id, p.flow, p.endpoint, p.lane::text AS lane, counted.jobs,
       counted.jobs >= b.most AS is_more,
       date_part('epoch', now() - o.run_at) AS oldest_seconds
FROM places AS p
CROSS JOIN (
    SELECT greatest(:of_a_flow_min::integer, :count_max::integer / greatest(1, count(*)))::integer AS most FROM places
) AS b
CROSS JOIN LATERAL (
    SELECT least(sum(found.jobs), b.most) AS jobs
    FROM (
        SELECT cardinality(q.ids) AS jobs
        FROM queue AS q
        WHERE q.lane = p.lane AND q.endpoint = p.endpoint AND q.org_id = p.org_id AND q.flow = p.flow
        LIMIT b.most
    ) AS found
) AS counted
CROSS JOIN LATERAL (
    SELECT q.run_at
    FROM queue AS q
    WHERE q.lane = p.lane AND q.endpoint = p.endpoint AND q.org_id = p.org_id AND q.flow = p.flow
    ORDER BY q.run_at, q.id
    LIMIT 1
) AS o

-- name: held
-- How many jobs are held, by endpoint and flow, as flows counts queued ones: of one organisation, or
-- of all. Reads as many rows as there are held jobs in the whole deployment.
--
-- :org  org, or '*' for all of them
SELECT h.org_id, h.flow, h.endpoint, h.lane::text AS lane, count(*) AS jobs
FROM held_jobs AS h
WHERE h.boot >= 0 AND (:org = '*' OR h.org_id = :org)
GROUP BY h.org_id, h.flow, h.endpoint, h.lane

-- name: postponed
-- How many jobs are staged or wait for a retry, by lane and state, up to a bound: of one organisation.
SELECT p.lane::text AS lane, p.state::text AS state, count(*) AS jobs
FROM (
    SELECT p.lane, p.state
    FROM postponed AS p
    WHERE p.org_id = :org
    LIMIT :rows_max::integer
) AS p
GROUP BY p.lane, p.state

-- name: postponed_of_all
-- How many jobs are staged or wait for a retry, by lane and state, up to a bound: of all organisations.
SELECT p.lane::text AS lane, p.state::text AS state, count(*) AS jobs
FROM (
    SELECT p.lane, p.state
    FROM postponed AS p
    ORDER BY p.run_at
    LIMIT :rows_max::integer
) AS p
GROUP BY p.lane, p.state

-- name: written
-- What PostgreSQL has written so far, for the metrics: the log of the whole server, and the commits in this
-- database. Reads PostgreSQL's statistics in memory, and no table.
SELECT w.wal_bytes::bigint AS wal_bytes, d.xact_commit AS commits
FROM pg_stat_wal AS w
CROSS JOIN pg_stat_database AS d
WHERE d.datname = current_database()
