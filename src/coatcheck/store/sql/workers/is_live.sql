-- Whether the worker `w` lives, as far as its row says: it was heard of within the shortest of the lease
-- times that it promised itself. Included by whatever has to know who publishes what, and by list.sql.
w.last_seen_at > now() - interval '1 second'
    * least(w.urgent_seconds, w.standard_seconds, w.bulk_seconds)
