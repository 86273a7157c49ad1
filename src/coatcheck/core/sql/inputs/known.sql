-- Which of these inputs a record still refers to. The pieces of the others are orphans.
SELECT c.place
FROM unnest($1::uuid[], $2::text[]) AS b (job_id, place)
JOIN input_copies AS c ON c.job_id = b.job_id AND c.place = b.place
WHERE c.layer = 'blob' AND c.deleted_at IS NULL
