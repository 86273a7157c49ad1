-- A worker process begins. Its boot number is the high half of every lease it will take.
INSERT INTO workers (name, version, urgent_seconds, standard_seconds, bulk_seconds)
VALUES ($1, $2, $3, $4, $5)
RETURNING boot
