-- Sealed secrets by organisation and id, by primary key, for every job that asked while the last read
-- was in flight.
--
-- $1 organisations, $2 ids
SELECT s.org_id, s.id, s.sealed
FROM unnest($1::text[], $2::uuid[]) AS wanted (org_id, id)
JOIN service_secrets AS s ON s.org_id = wanted.org_id AND s.id = wanted.id
