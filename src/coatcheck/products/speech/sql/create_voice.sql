-- Create a voice whose audio is about to be uploaded. It is not visible yet.
--
-- $1 organisation   $2 voice   $3 user   $4 blob key
INSERT INTO voices (org_id, id, user_id, blob_key)
VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING
