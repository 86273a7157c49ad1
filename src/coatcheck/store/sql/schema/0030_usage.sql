-- Usage by the hour, reports of usage, and meter events for Stripe.
--
-- A delta says when its jobs ended, by a default: the statements that end jobs are as they were. The
-- roll-up adds it to the sums of its hour as well as to those of its day. Days are kept for good,
-- hours for USAGE_HOURS_KEPT_DAYS (domain/limits.py).

ALTER TABLE usage_deltas ADD COLUMN ended_at timestamptz NOT NULL DEFAULT now();

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
);

-- What the pruner walks.
CREATE INDEX usage_hours_old ON usage_hours (hour);
-- `metered`: meter events for Stripe were made of it as it is. The roll-up takes that back when it adds
-- something. What is not metered yet:
CREATE INDEX usage_hours_unmetered ON usage_hours (org_id, hour) WHERE NOT metered;

-- The rows of the hour that is under way are changed over and over.
ALTER TABLE usage_hours SET (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000
);

-- What an organisation used in a day, a week or a month that has ended: made once, and kept as it was
-- made. `items` are the sums by endpoint and flow, `totals` those of all of them.

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

-- What the pruner walks.
CREATE INDEX usage_reports_old ON usage_reports (created_at);

-- An endpoint can ask to be told of them.
ALTER TABLE webhook_deliveries
    DROP CONSTRAINT webhook_deliveries_subject_kind_check,
    ADD CONSTRAINT webhook_deliveries_subject_kind_check
        CHECK (subject_kind IN ('job', 'task', 'batch', 'test', 'usage'));

-- From which hour on an organisation's usage is sent to Stripe: the one in which it was first seen with
-- a customer while sending was on. What it used before is not billed.
ALTER TABLE orgs ADD COLUMN stripe_metered_from timestamptz;

-- What is sent to Stripe as meter events. The value of a part is what an hour had used of a measure
-- when the part was made, less the parts before it: more than one only where something was added to an
-- hour later. A row is written before it is sent, and never changes its value or its identifier, by
-- which Stripe knows an event that it has already.
--
-- `attempted_at`: it was sent then, and it is not known what became of it. `due_at`: when to send it.

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

-- What is to be sent; and what the pruner walks.
CREATE INDEX stripe_meter_events_due ON stripe_meter_events (due_at) WHERE status = 'pending';
CREATE INDEX stripe_meter_events_old ON stripe_meter_events (hour);
