-- An export of a batch, unless it has expired.
SELECT /* include exports/view_columns.sql */
FROM batch_exports AS e
WHERE e.org_id = $1 AND e.batch_id = $2 AND e.id = $3
  AND (e.expires_at IS NULL OR e.expires_at > now())
