-- A task's generation, its file and its job: included by task.sql, tasks.sql and changes.sql, in the order
-- in which queries.py reads them. $3 cuts the text.
g.id AS generation_id, g.voice_id, g.language, left(g.text, $3::integer) AS said,
       length(g.text) AS characters, g.created_at AS generated_at, g.description, g.clone_id,
       a.name, a.blob_key, a.media_type, a.bytes, a.sha256,
       /* include coatcheck.core:jobs/view_columns.sql */, j.result
