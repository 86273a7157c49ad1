-- Forget uploads whose time is up, but for those that a part still needs. A while after: whoever used
-- one in time may not have committed yet.
WITH old AS MATERIALIZED (
    SELECT u.org_id, u.id
    FROM batch_uploads AS u
    WHERE u.expires_at <= now() - interval '10 minutes'
      AND NOT EXISTS (
          SELECT FROM batch_parts AS p
          WHERE p.org_id = u.org_id AND p.upload_id = u.id AND p.state <> 'done'
      )
    ORDER BY u.expires_at
    LIMIT $1::integer
    FOR UPDATE SKIP LOCKED
)
DELETE FROM batch_uploads AS u USING old AS o WHERE u.org_id = o.org_id AND u.id = o.id
RETURNING u.id
