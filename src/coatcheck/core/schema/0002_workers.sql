-- Worker processes. A boot is one run of one worker; its number is the high half of every lease it
-- takes. A heartbeat renews this one row, whatever the number of jobs held.

CREATE TABLE workers (
    boot             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name             text NOT NULL,
    version          text NOT NULL,
    -- The lease times are the worker's own promise: it stops itself at two thirds of them, so the
    -- rescuer must judge by these and not by its own settings.
    urgent_seconds   real NOT NULL,
    standard_seconds real NOT NULL,
    bulk_seconds     real NOT NULL,
    started_at       timestamptz NOT NULL DEFAULT now(),
    last_seen_at     timestamptz NOT NULL DEFAULT now(),
    -- The endpoints that it serves, and in which lanes. A job of an endpoint that no live worker
    -- serves is shown as stalled.
    endpoints        text[] NOT NULL DEFAULT '{}',
    lanes            text[] NOT NULL DEFAULT '{urgent,standard,bulk}',
    -- How many jobs it runs at a time in each of its `lanes`, in their order.
    slots            integer[] NOT NULL DEFAULT '{}',
    -- How many slots of each lane it reserves for organisations that hold none, where there is more than
    -- one organisation. Stored so that the explanation of a waiting job can say so.
    reserved         integer[] NOT NULL DEFAULT '{}',
    -- Plain functions run in threads, which cannot be stopped. An endpoint whose abandoned handlers still
    -- run is not served by this worker until they end: which endpoints, and how many threads each. Empty
    -- for nearly every worker at nearly every moment.
    threads_held     jsonb NOT NULL DEFAULT '{}',
    -- The digests of the endpoint definitions that its code declares (0004_catalogue.sql).
    publishes        text[] NOT NULL DEFAULT '{}',
    -- One run of one process, shared by all its workers. A supervisor chooses it for its children, and
    -- so knows which workers died when it has reaped a process.
    process          uuid NOT NULL DEFAULT gen_random_uuid(),
    -- Where to look for the process: processes have the same `host` only if process ids mean the same to
    -- them (processes.py). NULL where that is unknown.
    host             text COLLATE "C",
    pid              integer,
    process_ticks    bigint,
    -- The folder of its isolated jobs: processes that still use it are ended first.
    temp_dir         text,
    -- Since when it is known to be dead. Never unset: a process does not come back.
    died_at          timestamptz,

    CONSTRAINT a_process_is_named_whole CHECK (
        host IS NULL OR (pid IS NOT NULL AND process_ticks IS NOT NULL)
    )
) WITH (fillfactor = 50);
