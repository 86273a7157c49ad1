-- Which push of a process was the last to be counted. No row if that was so long ago that it was
-- forgotten, too.
--
-- $1 process
SELECT m.push FROM process_metrics AS m WHERE m.process = $1::uuid
