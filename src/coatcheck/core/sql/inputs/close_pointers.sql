-- Close the rows of pointers whose job ended after its blob was deleted: its time to live ended while
-- it ran. The other pointers are closed with their blob (mark_deleted.sql).
WITH ended AS MATERIALIZED (
    SELECT c.org_id, c.job_id, c.layer, c.place, coalesce(j.finished_at, now()) AS at
    FROM input_copies AS c
    LEFT JOIN jobs AS j ON j.org_id = c.org_id AND j.id = c.job_id
    WHERE c.layer = 'database' AND c.deleted_at IS NULL
      AND (j.id IS NULL OR j.finished_at IS NOT NULL)
    LIMIT $1::integer
)
UPDATE input_copies AS c
SET deleted_at = e.at, mechanism = 'end_of_job'
FROM ended AS e
WHERE c.org_id = e.org_id AND c.job_id = e.job_id AND c.layer = e.layer AND c.place = e.place
  AND c.deleted_at IS NULL
RETURNING c.job_id
