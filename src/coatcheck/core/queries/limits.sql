-- name: any
-- What workers have to know before they claim: whether there is any limit, because they skip
-- claims under limits otherwise; and whether there is more than one organisation, because only then they
-- reserve slots for those that hold none.
SELECT EXISTS (SELECT FROM concurrency_limits) OR EXISTS (SELECT FROM run_limits) AS limited,
       (/* include limits/shared */) AS shared

-- name: clear
-- Remove a concurrency limit.
DELETE FROM concurrency_limits WHERE org_id = :org AND scope = :scope AND name = :name RETURNING held_max

-- name: clear_run
-- Remove the limits of runs that have ended, and their tokens: common table expressions for the
-- statement that ends runs, from its `ended` (org_id, run_id).
limits_cleared AS (
    DELETE FROM run_limits AS l USING ended AS e
    WHERE l.org_id = e.org_id AND l.run = replace(e.run_id::text, '-', '')
),
tokens_cleared AS (
    DELETE FROM run_tokens AS t USING ended AS e
    WHERE t.org_id = e.org_id AND t.run = replace(e.run_id::text, '-', '')
)

-- name: clear_run_limits
-- Remove the limits of one run, and their tokens.
WITH ended (org_id, run_id) AS (SELECT :org::text COLLATE "C", :run::uuid),
/* include limits/clear_run */
SELECT FROM ended

-- name: declare
-- Set the concurrency limits that code declares for its endpoints, and remove those that it no longer
-- declares. Limits set by hand are left alone.
--
-- :limits  the limit of each, or NULL for none
WITH declared AS (
    SELECT d.name, d.held_max FROM unnest(:endpoints::text[], :limits::integer[]) AS d (name, held_max)
),
withdrawn AS (
    DELETE FROM concurrency_limits AS c USING declared AS d
    WHERE c.org_id = '*' AND c.scope = 'endpoint' AND c.name = d.name
      AND c.declared AND d.held_max IS NULL
)
INSERT INTO concurrency_limits (org_id, scope, name, held_max, declared)
SELECT '*', 'endpoint', d.name, d.held_max, true FROM declared AS d WHERE d.held_max IS NOT NULL
ON CONFLICT (org_id, scope, name) DO UPDATE
SET held_max = excluded.held_max WHERE concurrency_limits.declared

-- name: list
-- The concurrency limits of an organisation, and those on whole endpoints ('*').
SELECT org_id, scope, name, held_max
FROM concurrency_limits
WHERE org_id IN (:org, '*')
ORDER BY org_id, scope, name

-- name: set
-- Set or change how many jobs may be held at once, from the next claim on. A limit that code declared
-- is then set by hand: the next worker to start leaves it as it is.
INSERT INTO concurrency_limits (org_id, scope, name, held_max)
VALUES (:org, :scope, :name, :held_max)
ON CONFLICT (org_id, scope, name) DO UPDATE SET held_max = excluded.held_max, declared = false

-- name: set_run_limits
-- Set or change the limits on all tasks of a run, from the next claim on.
--
-- :held_max  held at once   :per_second  starts per second
-- :key_per_second  starts per second of each flow: NULL for no limit
INSERT INTO run_limits (org_id, run, held_max, per_second, key_per_second)
VALUES (:org, replace(:run::uuid::text, '-', ''), :held_max, :per_second, :key_per_second)
ON CONFLICT (org_id, run) DO UPDATE
SET held_max = excluded.held_max, per_second = excluded.per_second,
    key_per_second = excluded.key_per_second

-- name: shared
-- Whether there is more than one organisation: included by any and explain. An organisation
-- counts if it has a row, or a job that is still kept: a token of a trusted issuer may name one without
-- a row. Each part reads the beginning of an index.
(SELECT count(*) FROM (SELECT FROM orgs LIMIT 2) AS o) > 1
OR (
    SELECT true FROM jobs AS j
    WHERE j.org_id > (SELECT f.org_id FROM jobs AS f ORDER BY f.org_id LIMIT 1)
    ORDER BY j.org_id
    LIMIT 1
) IS NOT NULL

-- name: stop_run
-- Stop claims of a run. Its rates stay until it ends.
INSERT INTO run_limits (org_id, run, held_max)
VALUES (:org, replace(:run::uuid::text, '-', ''), 0)
ON CONFLICT (org_id, run) DO UPDATE SET held_max = 0
