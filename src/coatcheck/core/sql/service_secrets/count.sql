-- How many secrets each key has sealed, and under '' how many definitions hold plain secrets. Reads the
-- indexes service_secrets_key and services_unsealed.
SELECT s.key_id, count(*) AS secrets FROM service_secrets AS s GROUP BY s.key_id
UNION ALL
SELECT '', count(*)
FROM services AS s
WHERE /* include services/is_unsealed.sql */
HAVING count(*) > 0
