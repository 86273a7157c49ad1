-- Which of these staged lists somebody still answers for: their time is not up and nobody has used
-- them, or a part that has not been taken in needs them. A while longer, because whoever used one in
-- time may not have committed yet.
SELECT u.blob_key
FROM unnest($1::uuid[], $2::text[]) AS b (id, blob_key)
JOIN batch_uploads AS u ON u.id = b.id AND u.blob_key = b.blob_key
WHERE (u.batch_id IS NULL AND u.expires_at > now() - interval '10 minutes')
   OR (u.batch_id IS NOT NULL AND EXISTS (
          SELECT FROM batch_parts AS p
          WHERE p.org_id = u.org_id AND p.upload_id = u.id AND p.state <> 'done'
      ))
