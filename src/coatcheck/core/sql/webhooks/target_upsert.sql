-- Make sure that targets exist, and stay: included by the statements that refer to them, from their
-- `named` (org_id, id, url).
--
-- A target that was used within the hour is left alone: it is deleted only after days, and a row that
-- many submissions touched would make them wait for each other. A target that answered 410 is enabled
-- again. In the order of the key: two of these that meet wait, and do not deadlock.
INSERT INTO webhook_targets AS t (org_id, id, url)
    SELECT DISTINCT ON (n.org_id, n.id) n.org_id, n.id, n.url
    FROM named AS n
    WHERE NOT EXISTS (
        SELECT
        FROM webhook_targets AS known
        WHERE known.org_id = n.org_id AND known.id = n.id AND known.disabled_at IS NULL
          AND known.used_at > now() - interval '1 hour'
    )
    ORDER BY n.org_id, n.id
    ON CONFLICT (org_id, id) DO UPDATE
    SET used_at = now(), disabled_at = NULL,
        failures = CASE WHEN t.disabled_at IS NULL THEN t.failures ELSE 0 END
