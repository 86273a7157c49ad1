-- Worker processes. A boot is one run of one process; its number is the high half of every lease
-- it takes. A heartbeat renews this one row, whatever the number of jobs held.
--
-- The lease times are the worker's own promise: it stops itself at two thirds of them, so whoever
-- rescues must judge by these and not by its own settings.

CREATE TABLE workers (
    boot             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name             text NOT NULL,
    version          text NOT NULL,
    urgent_seconds   real NOT NULL,
    standard_seconds real NOT NULL,
    bulk_seconds     real NOT NULL,
    started_at       timestamptz NOT NULL DEFAULT now(),
    last_seen_at     timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
