-- The jobs that prevented submissions from being created: they have the same id (our own statement,
-- sent twice) or the same idempotency key.
SELECT s.position, j.id, j.state::text AS state, j.fingerprint
FROM unnest($1::text[], $2::uuid[], $3::text[]) WITH ORDINALITY
    AS s (org_id, id, idempotency_key, position)
CROSS JOIN LATERAL (
    SELECT j.id, j.state, j.fingerprint
    FROM jobs AS j
    WHERE j.org_id = s.org_id AND j.id = s.id
    UNION ALL
    SELECT j.id, j.state, j.fingerprint
    FROM jobs AS j
    WHERE j.org_id = s.org_id AND j.idempotency_key = s.idempotency_key
    LIMIT 1
) AS j
