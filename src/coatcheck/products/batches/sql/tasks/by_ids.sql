-- Tasks of some runs by their ids, in the order of the ids. The ids are computed from the tasks'
-- numbers: each row of a page is one read by primary key, wherever in the run the page begins.
--
-- $1 org   $2 runs   $3 as in view_columns.sql   $4 ids
SELECT /* include tasks/view_columns.sql */
FROM unnest($4::uuid[]) WITH ORDINALITY AS wanted (id, position)
JOIN jobs AS j ON j.org_id = $1 AND j.id = wanted.id AND j.run_id = ANY ($2::uuid[])
ORDER BY wanted.position
