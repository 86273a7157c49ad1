-- The columns of a run `r`, in the order of RunView. get.sql and list.sql include them, with the joins
-- of run_joins.sql.
r.id AS run_id, r.number, r.parent_run, r.selection::text AS selection,
       CASE
           WHEN r.completed_at IS NOT NULL AND r.cancel_requested_at IS NOT NULL THEN 'cancelled'
           WHEN r.completed_at IS NOT NULL THEN 'completed'
           WHEN r.latched_at IS NOT NULL THEN 'running'
           WHEN r.closed_at IS NULL THEN 'open'
           WHEN stuck.error_code IS NOT NULL AND NOT stuck.others_wait THEN 'failed_ingest'
           ELSE 'ingesting'
       END AS status,
       r.tasks, held.tasks AS running, r.succeeded + fresh.succeeded AS succeeded,
       r.failed + fresh.failed AS failed, r.cancelled + fresh.cancelled AS cancelled,
       r.lines, r.bad_lines, stuck.error_code, stuck.error_message, r.created_at AS run_created_at,
       r.closed_at, r.cancel_requested_at, r.completed_at AS run_completed_at,
       CASE r.number WHEN 1 THEN r.tasks ELSE r.mirrored END AS mirrored, r.replaced_succeeded,
       r.replaced_failed, r.replaced_cancelled, r.repeats_all
