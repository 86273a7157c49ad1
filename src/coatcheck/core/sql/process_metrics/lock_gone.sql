-- The counts of those that are gone, for one at a time to add to: schema/core/0011_telemetry.sql made it.
SELECT m.samples FROM process_metrics AS m WHERE m.kind = 'gone' FOR UPDATE
