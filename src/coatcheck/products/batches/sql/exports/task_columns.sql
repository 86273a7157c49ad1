-- The columns of a task of a `chunk` in an export. ended.sql and ended_by_index.sql include them.
chunk.id, chunk.task_index, chunk.custom_id, chunk.attempts, chunk.finished_at, chunk.result,
       chunk.error_code, chunk.error_message,
       (
           SELECT json_agg(json_build_object(
               'name', a.name, 'media_type', a.media_type, 'bytes', a.bytes,
               'sha256', encode(a.sha256, 'hex')
           ) ORDER BY a.name)::text
           FROM artifacts AS a
           WHERE a.org_id = $1 AND a.job_id = chunk.id
       ) AS artifacts,
       coalesce((
           SELECT p.position
           FROM batch_positions AS p
           WHERE p.org_id = $1 AND p.run_id = $2 AND p.task_index = chunk.task_index
       ), chunk.task_index) AS position, chunk.run_id
