-- Delete expired uploads, except those that are still to be read. Some minutes late: a transaction that
-- used one in time may not have committed yet.
WITH old AS MATERIALIZED (
    SELECT u.org_id, u.id
    FROM uploads AS u
    WHERE u.expires_at <= now() - interval '10 minutes'
      AND (u.used_by IS NULL OR u.released_at IS NOT NULL)
    ORDER BY u.expires_at
    LIMIT $1::integer
    FOR UPDATE SKIP LOCKED
)
DELETE FROM uploads AS u USING old AS o WHERE u.org_id = o.org_id AND u.id = o.id
RETURNING u.id
