-- A worker process begins. Its boot number is the high half of every lease it will take.
--
-- $1 name, $2 version   $3, $4, $5 lease times of the lanes   $6 endpoints, $7 lanes that it serves
-- $8 how many jobs of each of these it runs at a time   $9 how many of these slots it keeps
INSERT INTO workers
    (name, version, urgent_seconds, standard_seconds, bulk_seconds, endpoints, lanes, slots, reserved)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
RETURNING boot
