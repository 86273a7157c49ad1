-- The window of a search for changes: included by the statements that search. `seen` is the snapshot
-- at the start of the search, which on its first page is this statement's own.
--
-- $4 after which snapshot, or NULL   $5 up to which one, or NULL for now
SELECT coalesce($5::text::pg_snapshot, pg_current_snapshot()) AS seen,
       $4::text::pg_snapshot AS known,
       pg_snapshot_xmin($4::text::pg_snapshot)::text::bigint AS known_from,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_id,
       -- The database is behind the given snapshot, for instance after a restore: report everything.
       pg_snapshot_xmax($4::text::pg_snapshot) > pg_snapshot_xmax(pg_current_snapshot()) AS is_foreign
