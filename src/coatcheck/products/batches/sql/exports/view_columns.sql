-- The columns of an export, in the order of ExportView.
e.id, e.batch_id, e.run_id, e.state, e.blob_key, e.bytes, e.sha256, e.tasks_written, e.error_code,
       e.error_message, e.created_at, e.completed_at, e.expires_at, e.all_runs
