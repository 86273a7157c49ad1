-- What a reader sees of a delivery: included by list.sql, of_subject.sql, get.sql.
d.org_id, d.id, d.subject_kind, d.subject_id, d.run_id, d.event, t.url, d.status, d.tries,
       d.last_status_code, d.last_error, d.last_try_at, d.due_at, d.created_at, d.ended_at
