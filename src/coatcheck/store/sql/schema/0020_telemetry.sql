-- What processes say about themselves, and which trace a job belongs to.
--
-- One row a process, written over every few seconds with all its Prometheus samples: workers listen
-- on no socket, so the server that is scraped adds the rows up. Counts must never go back, so a
-- process that is gone is folded: its counts are added to the row of kind 'gone', and its own row
-- stays for a while, without samples, so that a process that was only asleep finds out which of its
-- pushes were counted (engine/process_metrics.py).

CREATE TABLE process_metrics (
    process    uuid PRIMARY KEY,
    kind       text NOT NULL,
    push       bigint NOT NULL,
    pushed_at  timestamptz NOT NULL DEFAULT now(),
    ended      boolean NOT NULL DEFAULT false,
    samples    bytea
) WITH (fillfactor = 50);

-- Of those that are gone there is none yet.
INSERT INTO process_metrics (process, kind, push, samples)
VALUES ('00000000-0000-0000-0000-000000000000', 'gone', 0, '');

-- A W3C traceparent. Only jobs have it whose submission was traced.
ALTER TABLE jobs ADD COLUMN traceparent text;
