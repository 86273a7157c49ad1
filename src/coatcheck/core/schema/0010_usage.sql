-- Usage: what jobs have used, exactly; reports of it; and meter events for Stripe.
--
-- Every statement that ends jobs adds their usage to `usage_deltas`, a row for each group of them: the
-- end of a job is fenced and happens once, and so does its row. Rows are only ever added, so no two
-- completions wait for each other. The roll-up moves them into `usage` and `usage_hours`, a statement at
-- a time; deltas and sums together are always exact.
--
-- The deltas count a run's tasks as well. The roll-up adds them to the run; a reader of a run adds the
-- deltas that are left.

CREATE TABLE usage_deltas (
    org_id        text COLLATE "C" NOT NULL,
    seq           bigint GENERATED ALWAYS AS IDENTITY,
    day           date NOT NULL,
    completed     integer NOT NULL,
    failed        integer NOT NULL,
    cancelled     integer NOT NULL,
    attempts      bigint NOT NULL,
    payload_bytes bigint NOT NULL,
    result_bytes  bigint NOT NULL,
    run_seconds   double precision NOT NULL,
    endpoint      text COLLATE "C" NOT NULL,
    flow          text COLLATE "C" NOT NULL,
    run_id        uuid,
    -- When its jobs ended: the default saves the statements that end jobs from naming it.
    ended_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, seq)
) WITH (
    -- The roll-up empties it all the time: it must not gather dead rows. Analyzed rarely, as claims.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 1
);

CREATE INDEX usage_deltas_run ON usage_deltas (org_id, run_id) WHERE run_id IS NOT NULL;

-- By the day, kept for good.

CREATE TABLE usage (
    org_id        text COLLATE "C" NOT NULL,
    day           date NOT NULL,
    completed     bigint NOT NULL,
    failed        bigint NOT NULL,
    cancelled     bigint NOT NULL,
    attempts      bigint NOT NULL,
    payload_bytes bigint NOT NULL,
    result_bytes  bigint NOT NULL,
    run_seconds   double precision NOT NULL,
    endpoint      text COLLATE "C" NOT NULL,
    flow          text COLLATE "C" NOT NULL,
    PRIMARY KEY (org_id, day, endpoint, flow)
) WITH (
    -- The rows of today are changed over and over.
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000
);

-- By the hour, kept for USAGE_HOURS_KEPT_DAYS (domain/limits.py). `metered`: its current values are in
-- meter events for Stripe. The roll-up resets it when it adds something.

CREATE TABLE usage_hours (
    org_id        text COLLATE "C" NOT NULL,
    hour          timestamptz NOT NULL,
    completed     bigint NOT NULL,
    failed        bigint NOT NULL,
    cancelled     bigint NOT NULL,
    attempts      bigint NOT NULL,
    payload_bytes bigint NOT NULL,
    result_bytes  bigint NOT NULL,
    run_seconds   double precision NOT NULL,
    endpoint      text COLLATE "C" NOT NULL,
    flow          text COLLATE "C" NOT NULL,
    metered       boolean NOT NULL DEFAULT false,
    PRIMARY KEY (org_id, hour, endpoint, flow)
) WITH (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000
);

-- Retention walks the first; the second has the hours to meter.
CREATE INDEX usage_hours_old ON usage_hours (hour);
CREATE INDEX usage_hours_unmetered ON usage_hours (org_id, hour) WHERE NOT metered;

-- An organisation's usage in a day, a week or a month that has ended: made once, and never changed.
-- `items` are the sums by endpoint and flow, `totals` those of all of them.

CREATE TABLE usage_reports (
    org_id     text COLLATE "C" NOT NULL,
    period     text COLLATE "C" NOT NULL CHECK (period IN ('day', 'week', 'month')),
    first_day  date NOT NULL,
    last_day   date NOT NULL,
    id         uuid NOT NULL DEFAULT uuidv7(),
    created_at timestamptz NOT NULL DEFAULT now(),
    totals     jsonb NOT NULL,
    items      jsonb NOT NULL,
    PRIMARY KEY (org_id, period, first_day),
    UNIQUE (org_id, id)
);

-- Retention walks it.
CREATE INDEX usage_reports_old ON usage_reports (created_at);

-- Meter events for Stripe. The value of a part is the hour's usage of a measure when the part was made,
-- less the earlier parts: there is more than one only if usage was added to an hour later. A row is
-- written before it is sent, and never changes its value or its identifier, by which Stripe recognises
-- a repeated event.
--
-- `attempted_at`: it was sent then, with an unknown outcome. `due_at`: when to send it.

CREATE TABLE stripe_meter_events (
    org_id       text COLLATE "C" NOT NULL,
    hour         timestamptz NOT NULL,
    measure      text COLLATE "C" NOT NULL,
    part         integer NOT NULL,
    identifier   text COLLATE "C" NOT NULL,
    event_name   text COLLATE "C" NOT NULL,
    customer     text COLLATE "C" NOT NULL,
    value        bigint NOT NULL CHECK (value > 0),
    status       text COLLATE "C" NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'acknowledged', 'expired')),
    attempts     integer NOT NULL DEFAULT 0,
    due_at       timestamptz NOT NULL DEFAULT now(),
    attempted_at timestamptz,
    last_error   text,
    created_at   timestamptz NOT NULL DEFAULT now(),
    ended_at     timestamptz,
    PRIMARY KEY (org_id, hour, measure, part),
    CONSTRAINT ended_when_it_did CHECK ((status = 'pending') = (ended_at IS NULL))
);

-- The events to send; and what retention walks.
CREATE INDEX stripe_meter_events_due ON stripe_meter_events (due_at) WHERE status = 'pending';
CREATE INDEX stripe_meter_events_old ON stripe_meter_events (hour);
