-- Whether the worker `w` is live, as far as its row says: it was seen within the shortest of its lease
-- times, and is not recorded as dead. Included by the statements that need to know who publishes what,
-- and by list.sql.
w.died_at IS NULL AND w.last_seen_at > now() - interval '1 second'
    * least(w.urgent_seconds, w.standard_seconds, w.bulk_seconds)
