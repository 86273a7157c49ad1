-- Up to where a look for changes goes: included by the statements that look. `seen` is the snapshot that
-- began the look, which is this statement's own on its first page.
--
-- $4 after which snapshot, or NULL   $5 up to which one, or NULL for now
SELECT coalesce($5::text::pg_snapshot, pg_current_snapshot()) AS seen,
       $4::text::pg_snapshot AS known,
       pg_snapshot_xmin($4::text::pg_snapshot)::text::bigint AS known_from,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_id,
       -- Of a database that is behind it, such as one that was restored: all is told again.
       pg_snapshot_xmax($4::text::pg_snapshot) > pg_snapshot_xmax(pg_current_snapshot()) AS is_foreign
