-- Which of these lists, that came in the body of a request, a part still needs: one that was not
-- taken in, or could not be. The pieces of the others are orphans.
SELECT p.source_key
FROM unnest($1::uuid[], $2::text[]) AS b (id, source_key)
JOIN batch_parts AS p ON p.id = b.id AND p.source_key = b.source_key
WHERE p.state <> 'done'
