-- name: add
-- Put jobs into the queue, in the statement that queues them: from its `queued`, which gives org_id, id,
-- lane, endpoint, flow and run_at of each. A row names up to 64 jobs of one flow, in the order of
-- their ids (core/schema/0001_jobs.sql).
INSERT INTO queue (org_id, id, lane, endpoint, flow, run_at, ids)
    SELECT a.org_id, a.ids[cardinality(a.ids)], a.lane, a.endpoint, a.flow, a.run_at, a.ids
    FROM (
        SELECT n.org_id, n.lane, n.endpoint, n.flow, n.run_at, array_agg(n.id ORDER BY n.id) AS ids
        FROM (
            SELECT q.org_id, q.id, q.lane, q.endpoint, q.flow, q.run_at,
                   (row_number() OVER (
                       PARTITION BY q.org_id, q.lane, q.endpoint, q.flow, q.run_at ORDER BY q.id
                   ) - 1) / 64 AS row
            FROM queued AS q
        ) AS n
        GROUP BY n.org_id, n.lane, n.endpoint, n.flow, n.run_at, n.row
    ) AS a

-- name: add_moved
-- Put the jobs into the queue that a statement queued again: common table expressions from its `moved`,
-- which gives lane and run_at as well.
queued AS (
    SELECT m.org_id, m.id, m.lane, m.endpoint, m.flow, m.run_at
    FROM moved AS m
    WHERE m.state = 'queued'
),
added AS (
    /* include queue/add */
)

-- name: take
-- Take jobs from the front of flows for a claim: common table expressions that give `picked`, the locked
-- rows of jobs by ctid. `lines` gives lane, endpoint, org_id and flow, how many `jobs` to take, and a
-- `rank` to return with them.
--
-- Locks as many rows of the queue as have that many jobs, and then the jobs; waits for neither. Each
-- lock is taken in one MATERIALIZED expression, because a LIMIT inside an IN subquery may be re-run and
-- take too many. Another claim that meets a locked row goes on to the next one of the flow.
--
-- What was taken is removed from its row. So are jobs that it passes and that are not queued any more; they
-- take up no room. One that somebody has locked stays.
locked AS MATERIALIZED (
    SELECT r.tid, r.org_id, r.id AS row, r.seq, r.run_at, r.ids, r.room, l.rank
    FROM lines AS l
    CROSS JOIN LATERAL (
        SELECT k.tid, k.org_id, k.id, k.seq, k.run_at, k.ids,
               (l.jobs + cardinality(k.ids)
                - sum(cardinality(k.ids)) OVER (ORDER BY k.run_at, k.id))::integer AS room
        FROM (
            SELECT q.ctid AS tid, q.org_id, q.id, q.seq, q.run_at, q.ids
            FROM queue AS q
            WHERE q.lane = l.lane AND q.endpoint = l.endpoint AND q.org_id = l.org_id
              AND q.flow = l.flow
            ORDER BY q.run_at, q.id
            LIMIT (
                -- As many rows as have that many jobs. Most flows have them in few rows: look at few first.
                SELECT c.rows
                FROM (VALUES (least(l.jobs / 16 + 8, l.jobs)), (l.jobs)) AS look (rows_max)
                CROSS JOIN LATERAL (
                    SELECT count(*) FILTER (WHERE s.before < l.jobs) AS rows, sum(s.jobs) AS jobs
                    FROM (
                        SELECT f.jobs, sum(f.jobs) OVER (ORDER BY f.run_at, f.id) - f.jobs AS before
                        FROM (
                            SELECT q.run_at, q.id, cardinality(q.ids) AS jobs
                            FROM queue AS q
                            WHERE q.lane = l.lane AND q.endpoint = l.endpoint AND q.org_id = l.org_id
                              AND q.flow = l.flow
                            ORDER BY q.run_at, q.id
                            LIMIT look.rows_max
                        ) AS f
                    ) AS s
                ) AS c
                WHERE c.jobs >= l.jobs OR look.rows_max = l.jobs
                LIMIT 1
            )
            FOR UPDATE SKIP LOCKED
        ) AS k
    ) AS r
    WHERE r.room > 0
),
picked AS MATERIALIZED (
    SELECT j.tid, j.id, j.place, k.tid AS row, k.run_at, k.rank
    FROM locked AS k
    CROSS JOIN LATERAL (
        SELECT j.tid, n.id, n.place
        FROM (SELECT unnest(k.ids) AS id, generate_subscripts(k.ids, 1) AS place) AS n
        CROSS JOIN LATERAL (
            -- Not a join, which may begin with all jobs.
            SELECT j.ctid AS tid
            FROM jobs AS j
            WHERE j.org_id = k.org_id AND j.id = n.id AND j.state = 'queued'
            FOR UPDATE SKIP LOCKED
        ) AS j
        LIMIT k.room
    ) AS j
),
passed AS MATERIALIZED (
    SELECT k.tid, coalesce(p.jobs, 0) AS jobs,
           CASE WHEN p.jobs = k.room THEN p.place ELSE cardinality(k.ids) END AS names
    FROM locked AS k
    LEFT JOIN (
        SELECT p.row, count(*) AS jobs, max(p.place) AS place FROM picked AS p GROUP BY p.row
    ) AS p ON p.row = k.tid
),
kept AS MATERIALIZED (
    SELECT k.org_id, k.row, k.seq, CASE WHEN p.jobs < p.names THEN array(
               SELECT n.id
               FROM unnest(k.ids[: p.names]) WITH ORDINALITY AS n (id, place)
               WHERE n.id NOT IN (SELECT t.id FROM picked AS t)
                 AND (
                     SELECT true FROM jobs AS j
                     WHERE j.org_id = k.org_id AND j.id = n.id AND j.state = 'queued'
                 ) IS NOT NULL
               ORDER BY n.place
           ) END || k.ids[p.names + 1:] AS ids
    FROM locked AS k
    JOIN passed AS p ON p.tid = k.tid
),
/* include queue/keep */

-- name: forget
-- Remove a job from the queue that was ended by a statement which could not see its row.
WITH changed AS (
    SELECT j.org_id, j.id, j.lane, j.endpoint, j.flow, j.run_at, 'queued'::job_state AS previous
    FROM jobs AS j
    WHERE j.org_id = :org AND j.id = :job AND j.state IN ('completed', 'failed', 'cancelled')
),
/* include queue/leave */
SELECT count(*) FROM left_behind

-- name: job
-- The queued job that a row of the queue names as `n` (org_id, id): included by readers. Looked up job by
-- job: a join may begin with all jobs, or with an organisation's history.
CROSS JOIN LATERAL (
    SELECT * FROM jobs AS j
    WHERE j.org_id = n.org_id AND j.id = n.id AND j.state = 'queued'
    OFFSET 0
) AS j

-- name: keep
-- Leave only `kept` ids in rows of the queue, which the statement has locked: by key. A row that another
-- statement has changed since this one began is locked in a version that this one cannot see, and
-- would not find by ctid. Included by take and leave.
emptied AS (
    DELETE FROM queue AS q USING kept AS k
    WHERE q.org_id = k.org_id AND q.id = k.row AND q.seq = k.seq AND cardinality(k.ids) = 0
),
shortened AS (
    UPDATE queue AS q
    SET ids = k.ids, id = k.ids[cardinality(k.ids)]
    FROM kept AS k
    WHERE q.org_id = k.org_id AND q.id = k.row AND q.seq = k.seq AND cardinality(k.ids) > 0
)

-- name: leave
-- Remove jobs from the queue that were ended there: common table expressions from `changed`, which
-- gives previous, lane and run_at as well. Each job's row is found by one probe of queue_order. A row that
-- a claim has locked is skipped: a claim removes what is not queued any more.
left_behind AS MATERIALIZED (
    SELECT c.id, c.org_id, r.row, r.seq
    FROM changed AS c
    CROSS JOIN LATERAL (
        SELECT q.id AS row, q.seq, q.ids
        FROM queue AS q
        WHERE q.lane = c.lane AND q.endpoint = c.endpoint AND q.org_id = c.org_id
          AND q.flow = c.flow AND q.run_at = c.run_at AND q.id >= c.id
        ORDER BY q.id
        LIMIT 1
    ) AS r
    WHERE c.previous = 'queued' AND c.id = ANY (r.ids)
),
rows_left AS MATERIALIZED (
    SELECT q.org_id, q.id AS row, q.seq, q.ids
    FROM (SELECT DISTINCT b.org_id, b.row, b.seq FROM left_behind AS b) AS r
    CROSS JOIN LATERAL (
        SELECT *
        FROM queue AS q
        WHERE q.org_id = r.org_id AND q.id = r.row AND q.seq = r.seq
        FOR UPDATE SKIP LOCKED
    ) AS q
),
kept AS MATERIALIZED (
    SELECT r.org_id, r.row, r.seq, array(
               SELECT n.id
               FROM unnest(r.ids) WITH ORDINALITY AS n (id, place)
               WHERE n.id NOT IN (SELECT b.id FROM left_behind AS b)
               ORDER BY n.place
           ) AS ids
    FROM rows_left AS r
),
/* include queue/keep */
