-- The exports of a batch, newest first.
SELECT /* include exports/view_columns.sql */
FROM batch_exports AS e
WHERE e.org_id = $1 AND e.batch_id = $2 AND (e.expires_at IS NULL OR e.expires_at > now())
ORDER BY e.id DESC
LIMIT $3
