-- A page of a user's tasks, newest first, with the index generations_of_user: a generation's id has the
-- timestamp of its job's id. Read under coatcheck_user.
--
-- $1 organisation   $2 user   $3 characters of each text   $4 older than this generation
-- $5 states, or NULL   $6 endpoints: those of the requested types   $7 limit
SELECT /* include task_columns.sql */
FROM /* include task_joins.sql */
WHERE g.org_id = $1 AND g.user_id = $2 AND g.id < $4::uuid
  AND ($5::text[] IS NULL OR j.state = ANY ($5::text[]::job_state[]))
  AND j.endpoint = ANY ($6::text[])
ORDER BY g.id DESC
LIMIT $7
