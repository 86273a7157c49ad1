-- Delete the rows of voices whose blobs are deleted.
--
-- $1 organisations   $2 voices
DELETE FROM voices AS v
USING unnest($1::text[], $2::uuid[]) AS gone (org_id, id)
WHERE v.org_id = gone.org_id AND v.id = gone.id AND v.deleted_at IS NOT NULL
