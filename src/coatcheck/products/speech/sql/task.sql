-- A user's task, by its generation. Read under coatcheck_user.
--
-- $1 organisation   $2 user   $3 characters of the text   $4 generation
SELECT /* include task_columns.sql */
FROM /* include task_joins.sql */
WHERE g.org_id = $1 AND g.user_id = $2 AND g.id = $4
