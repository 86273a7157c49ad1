-- What a reader sees of a delivery: included by list.sql and get.sql.
d.org_id, d.id, d.subject_kind, d.subject_id, d.run_id, d.event, nullif(t.url, '') AS url,
       CASE WHEN t.events IS NOT NULL OR t.deleted_at IS NOT NULL THEN t.id END AS endpoint,
       d.status = 'pending' AND t.paused_at IS NOT NULL AS paused, d.status, d.tries,
       d.last_status_code, d.last_error, d.last_try_at, d.due_at, d.created_at, d.ended_at
