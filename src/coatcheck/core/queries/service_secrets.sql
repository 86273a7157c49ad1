-- name: count
-- How many secrets each key has sealed, and under '' how many definitions hold plain secrets. Reads the
-- indexes service_secrets_key and services_unsealed.
SELECT s.key_id, count(*) AS secrets FROM service_secrets AS s GROUP BY s.key_id
UNION ALL
SELECT '', count(*)
FROM services AS s
WHERE /* include services/is_unsealed */
HAVING count(*) > 0

-- name: find
-- Sealed secrets by organisation and id, by primary key, for every job that asked while the last read
-- was in flight.
SELECT s.org_id, s.id, s.sealed
FROM unnest(:orgs::text[], :ids::uuid[]) AS wanted (org_id, id)
JOIN service_secrets AS s ON s.org_id = wanted.org_id AND s.id = wanted.id

-- name: prune
-- Delete retired secrets that nothing can need any more: no waiting or running job was accepted while a
-- definition referred to them, and no unfinished run sends its tasks with them. A server may use a
-- definition for a while after it was replaced: jobs count that were accepted up to :grace_seconds seconds later.
--
-- Reads a page of retired rows, by the index service_secrets_retired, so that an organisation that
-- retires many costs the others nothing; the next page begins after the last row of this one. Jobs of
-- one endpoint are found by their flow. Waiting jobs are read once for each endpoint and organisation
-- of the page, in queue_order and postponed, and not for each of its rows: an organisation may have
-- many of both. Held jobs are read once, through claims. OFFSET 0 makes runs be looked up row by row, by
-- index: as a join it would read those of all organisations. Tasks have flows of their own, and their
-- run names its secrets.
--
-- Returns a row for each retired row that it read, in order.
--
-- :grace_seconds  seconds after which a retired row is checked
-- :endpoint  the endpoint of all such jobs
-- :after_id  when the last row of the previous page was retired, its organisation and its id
WITH page AS MATERIALIZED (
    SELECT s.org_id, s.id, s.endpoint_id, s.retired_at,
           s.retired_at + :grace_seconds::double precision * interval '1 second' AS until
    FROM service_secrets AS s
    WHERE s.retired_at < now() - :grace_seconds::double precision * interval '1 second'
      AND (s.retired_at, s.org_id, s.id) > (:after_at::timestamptz, :after_org::text, :after_id::uuid)
    ORDER BY s.retired_at, s.org_id, s.id
    LIMIT :rows_max::integer
    FOR UPDATE SKIP LOCKED
),
held AS MATERIALIZED (
    SELECT h.org_id, h.flow, min(h.created_at) AS oldest
    FROM held_jobs AS h
    WHERE h.boot >= 0 AND h.endpoint = :endpoint::text AND EXISTS (SELECT FROM page)
    GROUP BY h.org_id, h.flow
),
waiting AS MATERIALIZED (
    SELECT f.org_id, f.endpoint_id, least(q.oldest, s.oldest) AS oldest
    FROM (SELECT DISTINCT p.org_id, p.endpoint_id FROM page AS p) AS f
    CROSS JOIN LATERAL (
        SELECT min(j.created_at) AS oldest
        FROM unnest(enum_range(NULL::job_lane)) AS l (lane)
        CROSS JOIN LATERAL (
            SELECT q.org_id, unnest(q.ids) AS id
            FROM queue AS q
            WHERE q.lane = l.lane AND q.endpoint = :endpoint::text
              AND q.org_id = f.org_id AND q.flow = f.endpoint_id
            ORDER BY q.run_at, q.id
        ) AS n
        /* include queue/job */
    ) AS q
    LEFT JOIN (
        SELECT o.org_id, j.flow, min(j.created_at) AS oldest
        FROM (SELECT DISTINCT p.org_id FROM page AS p) AS o
        JOIN postponed AS p ON p.org_id = o.org_id AND p.endpoint = :endpoint::text
        /* include postponed/job */
        GROUP BY o.org_id, j.flow
    ) AS s ON s.org_id = f.org_id AND s.flow = f.endpoint_id
),
unneeded AS MATERIALIZED (
    SELECT p.org_id, p.id
    FROM page AS p
    WHERE NOT EXISTS (
        SELECT FROM waiting AS w
        WHERE w.org_id = p.org_id AND w.endpoint_id = p.endpoint_id AND w.oldest < p.until
    )
    AND NOT EXISTS (
        SELECT FROM held AS h
        WHERE h.org_id = p.org_id AND h.flow = p.endpoint_id AND h.oldest < p.until
    )
    AND NOT EXISTS (
        SELECT FROM runs AS r
        WHERE r.org_id = p.org_id AND r.completed_at IS NULL AND r.secrets_id = p.id
        OFFSET 0
    )
),
removed AS (
    DELETE FROM service_secrets AS s
    USING unneeded AS u
    WHERE s.org_id = u.org_id AND s.id = u.id
    RETURNING s.org_id, s.id
)
SELECT p.retired_at, p.org_id, p.id, r.id IS NOT NULL AS is_removed
FROM page AS p
LEFT JOIN removed AS r ON r.org_id = p.org_id AND r.id = p.id
ORDER BY p.retired_at, p.org_id, p.id

-- name: reseal
-- Replace a sealed text by one that was sealed anew, unless the service was registered with other
-- secrets meanwhile.
--
-- :before  texts as they were read   :anew  texts sealed anew
UPDATE service_secrets AS s
SET sealed = g.anew, sealed_at = now()
FROM unnest(:orgs::text[], :ids::uuid[], :before::text[], :anew::text[]) AS g (org_id, id, before, anew)
WHERE s.org_id = g.org_id AND s.id = g.id AND s.sealed = g.before
RETURNING s.id

-- name: sealed_with
-- Secrets that one key has sealed, by the index service_secrets_key, to seal them anew after a rotation.
-- In pages, so that one that cannot be opened does not hide the others.
--
-- :after_id  organisation and id to start after
SELECT s.org_id, s.id, s.sealed
FROM service_secrets AS s
WHERE s.key_id = :key_id AND (s.org_id, s.id) > (:after_org::text, :after_id::uuid)
ORDER BY s.org_id, s.id
LIMIT :rows_max::integer
