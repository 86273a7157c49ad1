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
        WHERE /* include jobs/of_service.sql */
          AND hashtext(j.owner) > wanted.owner_hash
        ORDER BY hashtext(j.owner)
        LIMIT 1
    ) AS next
    WHERE wanted.number < $3::integer
)
SELECT count(*) FROM owners WHERE number > 0
