-- Those of these stored lists that a part still needs, because its ingest has not ended or failed. The
-- pieces of the others are orphans.
SELECT p.source_key
FROM unnest($1::uuid[], $2::text[]) AS b (id, source_key)
JOIN batch_parts AS p ON p.id = b.id AND p.source_key = b.source_key
WHERE p.state <> 'done'
