-- Whether the worker `w` lives, as far as its row says: it was heard of within the shortest of the lease
-- times that it promised itself, and nobody has seen its process dead. Included by whatever has to know who
-- publishes what, and by list.sql.
w.died_at IS NULL AND w.last_seen_at > now() - interval '1 second'
    * least(w.urgent_seconds, w.standard_seconds, w.bulk_seconds)
