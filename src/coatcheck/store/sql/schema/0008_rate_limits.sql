-- How much of each rate limit is used up in its current window. One row for each limit, written over
-- from window to window: `name` is the key or the organisation it holds for, `seconds` its window's
-- length, so that a limit whose window is changed begins afresh and nobody counts in two lengths.
--
-- `used` is what was handed out to replicas; `requests_max` and `granted` are those of the last
-- statement that wrote the row, which is how it learns what it was given (sql/rates/take.sql).
--
-- Unlogged: it costs no write-ahead log and no flush, and after a crash of the server counting
-- begins again, which lets at most one more window's worth in.

CREATE UNLOGGED TABLE rate_windows (
    org_id       text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    seconds      integer NOT NULL CHECK (seconds > 0),
    window_start timestamptz NOT NULL,
    used         bigint NOT NULL CHECK (used >= 0),
    requests_max bigint NOT NULL,
    granted      bigint NOT NULL,
    PRIMARY KEY (org_id, name, seconds)
) WITH (fillfactor = 50);
