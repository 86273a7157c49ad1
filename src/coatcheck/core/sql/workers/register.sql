-- Register a worker process. Its boot number is the high half of every lease it will take.
--
-- $1 name, $2 version   $3, $4, $5 lease times of the lanes   $6 endpoints, $7 lanes that it serves
-- $8 how many jobs of each of these it runs at a time   $9 how many of these slots it reserves
-- $10 its process   $11 host, $12 pid, $13 its start, or NULL   $14 the folder of its isolated jobs
INSERT INTO workers
    (name, version, urgent_seconds, standard_seconds, bulk_seconds, endpoints, lanes, slots, reserved,
     process, host, pid, process_ticks, temp_dir)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
RETURNING boot
