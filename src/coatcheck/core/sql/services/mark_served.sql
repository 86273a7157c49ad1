-- Record for each definition whether a live worker publishes it, where that has changed, and delete
-- those that nobody has published for long. Returns the services with changes. While workers neither
-- come nor go, it writes nothing and reads two small tables.
--
-- `IN`, not a join: hashed, where the connection's plans allow nested loops only.
--
-- $1 seconds for which a definition without a live worker is kept
WITH served AS MATERIALIZED (
    /* include services/served.sql */
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
    WHERE p.org_id = '' AND p.unserved_since < now() - $1::double precision * interval '1 second'
      AND NOT (p.digest IN (SELECT s.digest FROM served AS s))
    RETURNING p.service_id
)
SELECT m.service_id FROM marked AS m
UNION
SELECT d.service_id FROM dropped AS d
