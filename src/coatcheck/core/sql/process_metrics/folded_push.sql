-- The last push of a process that was counted. No row if that was so long ago that it was deleted.
--
-- $1 process
SELECT m.push FROM process_metrics AS m WHERE m.process = $1::uuid
