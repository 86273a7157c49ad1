-- name: chosen
-- The definition of each endpoint that is in force: the newest that a live worker publishes; if none
-- does, the one that was published last. Included by resolve and declare_limits; by primary key.
SELECT DISTINCT ON (p.service_id, p.version, p.key)
       p.service_id, p.version, p.key, p.definition, p.position, p.published_at, p.unserved_since
FROM published_endpoints AS p
WHERE p.org_id = '' AND p.service_id = ANY (:services::text[])
ORDER BY p.service_id, p.version, p.key,
         p.unserved_since DESC NULLS FIRST, p.published_at DESC, p.digest

-- name: count
-- How many services an organisation has registered; by the primary key.
SELECT count(*) FROM services WHERE org_id = :org

-- name: declare_limits
-- Set the concurrency limits of some services' endpoints to those of the definitions in force
-- (chosen). Limits set by hand are left alone (limits/set).
WITH chosen AS (
    /* include services/chosen */
),
declared AS MATERIALIZED (
    SELECT c.service_id || CASE c.version WHEN 1 THEN '' ELSE '.v' || c.version END || '.' || c.key
               AS name,
           (c.definition ->> 'concurrency')::integer AS held_max
    FROM chosen AS c
),
withdrawn AS (
    DELETE FROM concurrency_limits AS l
    WHERE l.org_id = '*' AND l.scope = 'endpoint' AND l.declared
      AND split_part(l.name, '.', 1) = ANY (:services::text[])
      AND NOT EXISTS (
          SELECT FROM declared AS d WHERE d.name = l.name AND d.held_max IS NOT NULL
      )
)
INSERT INTO concurrency_limits AS l (org_id, scope, name, held_max, declared)
SELECT '*', 'endpoint', d.name, d.held_max, true FROM declared AS d WHERE d.held_max IS NOT NULL
ON CONFLICT (org_id, scope, name) DO UPDATE
SET held_max = excluded.held_max
WHERE l.declared AND l.held_max <> excluded.held_max

-- name: delete
-- Delete an organisation's service; accepted jobs go on. Its secrets are retired, and deleted after
-- those jobs.
--
-- :workspace  workspace or NULL for any   :notification  payload of the notification
WITH deleted AS (
    DELETE FROM services
    WHERE org_id = :org AND service_id = :service AND (:workspace::text IS NULL OR workspace_id = :workspace)
      AND source = 'http'
    RETURNING service_id
),
retired AS (
    UPDATE service_secrets AS s
    SET retired_at = now()
    FROM deleted AS d
    WHERE s.org_id = :org AND s.service_id = d.service_id AND s.retired_at IS NULL
)
SELECT d.service_id, pg_notify(:channel::text, :notification::text) FROM deleted AS d

-- name: end_silent
-- End the registrations of workers that publish endpoints which are to be deleted, and that have been
-- silent for the longest of their lease times: the rescuer may take everything that they hold. One that
-- comes back finds no registration, registers anew, and publishes its endpoints again.
--
-- :version  version, or NULL for all   :endpoint  key of an endpoint, or NULL for all
DELETE FROM workers AS w
WHERE w.died_at IS NULL
  AND w.last_seen_at <= now() - interval '1 second'
      * greatest(w.urgent_seconds, w.standard_seconds, w.bulk_seconds)
  AND w.publishes && ARRAY(
      SELECT p.digest::text
      FROM published_endpoints AS p
      WHERE p.org_id = '' AND p.service_id = :service::text
        AND (:version::integer IS NULL OR p.version = :version) AND (:endpoint::text IS NULL OR p.key = :endpoint)
  )

-- name: find
-- Services by organisation and name, for every caller that missed the cache while the last read was
-- in flight. An organisation's own service takes precedence over one that code declares.
SELECT wanted.org_id AS asked_by, s.org_id, s.service_id, s.workspace_id, s.source,
       s.definition::text AS definition, s.created_at, s.updated_at
FROM unnest(:orgs::text[], :services::text[]) AS wanted (org_id, service_id)
CROSS JOIN LATERAL (
    SELECT * FROM services AS s
    WHERE s.org_id IN (wanted.org_id, '') AND s.service_id = wanted.service_id
    ORDER BY s.org_id DESC
    LIMIT 1
) AS s

-- name: forget
-- Delete the endpoints of a service that no registered worker publishes, unless the worker is known to
-- be dead: of one version or one endpoint, if they are given. Returns those deleted; by primary key.
--
-- Registered, not live: a worker that was silent for a moment continues with its registration, and does
-- not publish again. Runs after end_silent, which ends those of workers that were silent for longer.
--
-- :version  version, or NULL for all   :endpoint  key of an endpoint, or NULL for all
DELETE FROM published_endpoints AS p
WHERE p.org_id = '' AND p.service_id = :service::text
  AND (:version::integer IS NULL OR p.version = :version) AND (:endpoint::text IS NULL OR p.key = :endpoint)
  AND NOT EXISTS (
      SELECT FROM published_endpoints AS l
      WHERE l.org_id = '' AND l.service_id = p.service_id AND l.version = p.version AND l.key = p.key
        AND l.digest IN (
            SELECT d.digest
            FROM workers AS w
            CROSS JOIN LATERAL unnest(w.publishes) AS d (digest)
            WHERE w.died_at IS NULL
        )
  )
RETURNING p.version, p.key

-- name: is_unsealed
-- Whether the definition of `s` holds plain secrets: the condition of the index services_unsealed.
-- Included by unsealed and service_secrets/count.
jsonb_path_exists(
    s.definition,
    '$.versions.*.endpoints[*] ? (
        (exists (@.target.headers.*) && !exists (@.target.secrets_id))
        || (exists (@.remote.secrets.*) && !exists (@.remote.secrets_id))
    )'
)

-- name: list
-- A page of the services that an organisation can call, its own and those that code declares, by name;
-- of one workspace, if it is given. No definition is read: what the list shows are columns
-- (core/schema/0004_catalogue.sql).
--
-- :workspace  workspace, or NULL for all   :after  after this name
SELECT s.org_id, s.service_id, s.workspace_id, s.source, s.version_numbers::text AS version_numbers,
       s.endpoint_counts::text AS endpoint_counts, s.created_at, s.updated_at
FROM (
    SELECT DISTINCT ON (service_id)
           org_id, service_id, workspace_id, source, version_numbers, endpoint_counts, created_at,
           updated_at
    FROM services
    WHERE org_id IN (:org, '') AND service_id > :after::text
    ORDER BY service_id, org_id DESC
) AS s
WHERE :workspace::text IS NULL OR s.workspace_id = :workspace
ORDER BY s.service_id
LIMIT :limit

-- name: list_code
-- The services that code declares: an engine takes the endpoints' defaults from them.
SELECT s.org_id, s.service_id, s.workspace_id, s.source,
       s.definition::text AS definition, s.created_at, s.updated_at
FROM services AS s
WHERE s.org_id = ''

-- name: lock
-- Serialise registrations and deletions of a service, until the transaction ends: which of its secrets
-- are retired depends on which exist.
SELECT pg_advisory_xact_lock(:lock::integer, hashtext(:org::text || '/' || :service::text))

-- name: lock_published
-- Serialise changes to what code publishes, until the transaction ends: which definition is in force
-- depends on all that are published. A process that is frozen meanwhile is cut off after 10 seconds:
-- until then no worker can register. By the transaction's own timeout, because a client may be frozen
-- between two messages of one statement, which counts as neither idle nor running; and from the moment
-- the lock is held, because it may have to wait for others.
SELECT pg_advisory_xact_lock(:lock::bigint), set_config('transaction_timeout', '10s', true)

-- name: mark_served
-- Record for each definition whether a live worker publishes it, where that has changed, and delete
-- those that nobody has published for long. Returns the services with changes. While workers neither
-- come nor go, it writes nothing and reads two small tables.
--
-- `IN`, not a join: hashed, where the connection's plans allow nested loops only.
--
-- :unserved_seconds  seconds for which a definition without a live worker is kept
WITH served AS MATERIALIZED (
    /* include services/served */
),
marked AS (
    UPDATE published_endpoints AS p
    SET unserved_since = CASE WHEN p.unserved_since IS NULL THEN now() END
    WHERE p.org_id = ''
      AND (p.unserved_since IS NULL) <> (p.digest IN (SELECT s.digest FROM served AS s))
    RETURNING p.service_id
),
dropped AS (
    DELETE FROM published_endpoints AS p
    WHERE p.org_id = '' AND p.unserved_since < now() - :unserved_seconds::double precision * interval '1 second'
      AND NOT (p.digest IN (SELECT s.digest FROM served AS s))
    RETURNING p.service_id
)
SELECT m.service_id FROM marked AS m
UNION
SELECT d.service_id FROM dropped AS d

-- name: publish
-- Publish what a worker's code declares, in the transaction that registers it. A known definition keeps
-- its age: a worker that starts with the code of running ones makes nothing newer. New ones count as
-- unserved until mark_served has run, which then sees the change.
--
-- :definitions  definitions of endpoints as JSON   :positions  the position of each in its service
WITH given AS MATERIALIZED (
    SELECT g.definition::jsonb AS definition, g.position
    FROM unnest(:definitions::text[], :positions::integer[]) AS g (definition, position)
),
published AS (
    INSERT INTO published_endpoints
        (service_id, version, key, definition, position, published_at, unserved_since)
    SELECT g.definition ->> 'service', (g.definition ->> 'version')::integer, g.definition ->> 'key',
           g.definition, g.position, statement_timestamp(), statement_timestamp()
    FROM given AS g
    ON CONFLICT (org_id, service_id, version, key, digest) DO NOTHING
)
UPDATE workers
SET publishes = array(SELECT md5(g.definition::text) FROM given AS g)
WHERE boot = :boot::bigint

-- name: published
-- Every published definition, for each endpoint the one in force first, with the live workers that
-- publish it: for people, and for a worker that starts.
WITH live AS MATERIALIZED (
    SELECT d.digest, array_agg(w.name ORDER BY w.boot DESC) AS names,
           array_agg(w.boot ORDER BY w.boot DESC) AS boots
    FROM workers AS w
    CROSS JOIN LATERAL unnest(w.publishes) AS d (digest)
    WHERE /* include workers/is_live */
    GROUP BY d.digest
)
SELECT p.definition::text AS definition, p.published_at, p.unserved_since,
       coalesce(l.names, '{}') AS names, coalesce(l.boots, '{}') AS boots
FROM published_endpoints AS p
LEFT JOIN live AS l ON l.digest = p.digest
WHERE p.org_id = ''
ORDER BY p.service_id, p.version, p.key,
         CASE WHEN l.digest IS NULL THEN coalesce(p.unserved_since, now()) END DESC NULLS FIRST,
         p.published_at DESC, p.digest

-- name: published_endpoints
-- The endpoints of a service that are published, or recently were; by primary key.
--
-- :version  version, or NULL for all   :endpoint  key of an endpoint, or NULL for all
SELECT DISTINCT p.version, p.key
FROM published_endpoints AS p
WHERE p.org_id = '' AND p.service_id = :service::text
  AND (:version::integer IS NULL OR p.version = :version) AND (:endpoint::text IS NULL OR p.key = :endpoint)
ORDER BY p.version, p.key

-- name: put
-- Register an organisation's service, or replace its registration. Returns nothing if the name is taken,
-- by code or by another workspace of the organisation; or if it is new, and the organisation is at its
-- limit. Two that register their last one at the same moment may both succeed. Its secrets are written
-- with it; those that it no longer has are retired, for the jobs that were accepted before.
--
-- :notification  payload of the notification   :secret_ids  ids of its secrets
-- :secret_endpoints  endpoint of each   :secret_texts  sealed text of each
-- :services_max  how many services the organisation may have
WITH written AS (
    INSERT INTO services AS s (org_id, workspace_id, service_id, source, definition)
    SELECT :org::text, :workspace::text, :service::text, 'http', :definition::text::jsonb
    WHERE NOT EXISTS (SELECT FROM services AS c WHERE c.org_id = '' AND c.service_id = :service::text)
      AND (
          EXISTS (SELECT FROM services AS o WHERE o.org_id = :org::text AND o.service_id = :service::text)
          OR (SELECT count(*) FROM services AS o WHERE o.org_id = :org::text) < :services_max::integer
      )
    ON CONFLICT (org_id, service_id) DO UPDATE
    SET definition = excluded.definition, updated_at = now()
    WHERE s.workspace_id = excluded.workspace_id
    RETURNING s.org_id, s.service_id, s.workspace_id, s.source,
              s.definition::text AS definition, s.created_at, s.updated_at
),
sealed AS (
    INSERT INTO service_secrets AS s (org_id, id, service_id, endpoint_id, sealed)
    SELECT :org::text, g.id, :service::text, g.endpoint_id, g.sealed
    FROM unnest(:secret_ids::uuid[], :secret_endpoints::text[], :secret_texts::text[]) AS g (id, endpoint_id, sealed)
    WHERE EXISTS (SELECT FROM written)
    ON CONFLICT (org_id, id) DO UPDATE
    SET sealed = excluded.sealed, sealed_at = now(), retired_at = NULL
),
retired AS (
    UPDATE service_secrets AS s
    SET retired_at = now()
    WHERE s.org_id = :org::text AND s.service_id = :service::text AND s.retired_at IS NULL
      AND s.id <> ALL (:secret_ids::uuid[]) AND EXISTS (SELECT FROM written)
)
SELECT w.*, pg_notify(:channel::text, :notification::text) FROM written AS w

-- name: resolve
-- Put the published definitions of some services into force: their rows in the catalogue become those of
-- chosen, endpoint by endpoint. Where keys differ but the calls would be the same (GET /{id} and
-- GET /{name}), the newer of the two answers, by the same order.
--
-- Writes and notifies only what differs. In the order of the names. A service without endpoints is
-- deleted.
WITH chosen AS (
    /* include services/chosen */
),
in_force AS MATERIALIZED (
    SELECT DISTINCT ON (c.service_id, c.version, c.definition ->> 'method', shape.path)
           c.service_id, c.version, c.key, c.definition, c.position
    FROM chosen AS c
    CROSS JOIN LATERAL (
        SELECT regexp_replace(c.definition ->> 'path', '\{\w+\}', '{}', 'g') AS path
    ) AS shape
    ORDER BY c.service_id, c.version, c.definition ->> 'method', shape.path,
             c.unserved_since DESC NULLS FIRST, c.published_at DESC, c.key
),
written AS (
    INSERT INTO services AS s (org_id, service_id, workspace_id, source, definition)
    SELECT '', v.service_id, :workspace::text, 'code',
           jsonb_build_object('versions', jsonb_object_agg(
               v.version::text, jsonb_build_object('endpoints', v.endpoints)
           ))
    FROM (
        SELECT f.service_id, f.version,
               jsonb_agg(f.definition ORDER BY f.position, f.key) AS endpoints
        FROM in_force AS f
        GROUP BY f.service_id, f.version
    ) AS v
    GROUP BY v.service_id
    ORDER BY v.service_id
    ON CONFLICT (org_id, service_id) DO UPDATE
    SET definition = excluded.definition, updated_at = now()
    WHERE s.definition <> excluded.definition
    RETURNING s.service_id
),
removed AS (
    DELETE FROM services AS s
    WHERE s.org_id = '' AND s.service_id = ANY (:services::text[])
      AND NOT EXISTS (SELECT FROM in_force AS f WHERE f.service_id = s.service_id)
    RETURNING s.service_id
)
SELECT c.service_id, pg_notify(:channel::text, '/' || c.service_id)
FROM (
    SELECT w.service_id FROM written AS w
    UNION ALL
    SELECT r.service_id FROM removed AS r
) AS c

-- name: seal
-- Replace a definition that holds plain secrets by one without, and add the sealed secrets. Only if it
-- is still the definition that was read: returns nothing if it was registered anew meanwhile.
--
-- :before  definition as it was read   :definition  definition without secrets
-- :notification  payload of the notification   :secret_ids  ids of its secrets
-- :secret_endpoints  endpoint of each   :secret_texts  sealed text of each
WITH written AS (
    UPDATE services AS s
    SET definition = :definition::text::jsonb
    WHERE s.org_id = :org AND s.service_id = :service AND s.definition = :before::text::jsonb
    RETURNING s.service_id
),
sealed AS (
    INSERT INTO service_secrets AS s (org_id, id, service_id, endpoint_id, sealed)
    SELECT :org, g.id, w.service_id, g.endpoint_id, g.sealed
    FROM written AS w
    CROSS JOIN unnest(:secret_ids::uuid[], :secret_endpoints::text[], :secret_texts::text[]) AS g (id, endpoint_id, sealed)
    ON CONFLICT (org_id, id) DO UPDATE
    SET sealed = excluded.sealed, sealed_at = now(), retired_at = NULL
)
SELECT w.service_id, pg_notify(:channel::text, :notification::text) FROM written AS w

-- name: served
-- The definitions that live workers publish. Included by mark_served. Workers of the same code
-- publish the same list: each list is unnested once.
SELECT d.digest
FROM (
    SELECT DISTINCT w.publishes FROM workers AS w WHERE /* include workers/is_live */
) AS live
CROSS JOIN LATERAL unnest(live.publishes) AS d (digest)

-- name: try_lock_published
-- The lock of lock_published, if it is free now; returns whether it was. With the same timeout.
SELECT pg_try_advisory_xact_lock(:lock::bigint), set_config('transaction_timeout', '10s', true)

-- name: unsealed
-- Definitions that hold plain secrets, from before a sealing key was set. By the index
-- services_unsealed.
SELECT s.org_id, s.service_id, s.workspace_id, s.source,
       s.definition::text AS definition, s.created_at, s.updated_at
FROM services AS s
WHERE /* include services/is_unsealed */
ORDER BY s.org_id, s.service_id
LIMIT :rows_max::integer
