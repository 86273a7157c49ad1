-- An upload that came to nothing: the voice keeper removes what there is of it.
--
-- $1 organisation   $2 voice
UPDATE voices AS v
SET deleted_at = now()
WHERE v.org_id = $1 AND v.id = $2 AND v.deleted_at IS NULL
RETURNING v.id
