-- Replace a definition that holds plain secrets by one without, and add the sealed secrets. Only if it
-- is still the definition that was read: returns nothing if it was registered anew meanwhile.
--
-- $1 organisation, $2 name   $3 definition as it was read, $4 definition without secrets
-- $5 channel, $6 payload of the notification   $7 ids of its secrets, $8 endpoint of each
-- $9 sealed text of each
WITH written AS (
    UPDATE services AS s
    SET definition = $4::text::jsonb
    WHERE s.org_id = $1 AND s.service_id = $2 AND s.definition = $3::text::jsonb
    RETURNING s.service_id
),
sealed AS (
    INSERT INTO service_secrets AS s (org_id, id, service_id, endpoint_id, sealed)
    SELECT $1, g.id, w.service_id, g.endpoint_id, g.sealed
    FROM written AS w
    CROSS JOIN unnest($7::uuid[], $8::text[], $9::text[]) AS g (id, endpoint_id, sealed)
    ON CONFLICT (org_id, id) DO UPDATE
    SET sealed = excluded.sealed, sealed_at = now(), retired_at = NULL
)
SELECT w.service_id, pg_notify($5::text, $6::text) FROM written AS w
