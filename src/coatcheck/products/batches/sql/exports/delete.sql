-- Delete the rows of exports whose blobs were deleted before.
--
-- $1 orgs   $2 ids
DELETE FROM batch_exports AS e
USING unnest($1::text[], $2::uuid[]) AS gone (org_id, id)
WHERE e.org_id = gone.org_id AND e.id = gone.id
