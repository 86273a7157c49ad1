-- The counts of ended processes, locked for adding to: core/schema/0011_telemetry.sql creates the row.
SELECT m.samples FROM process_metrics AS m WHERE m.kind = 'gone' FOR UPDATE
