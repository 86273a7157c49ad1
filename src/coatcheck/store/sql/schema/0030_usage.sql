-- Usage by the hour, and reports of usage.
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
    PRIMARY KEY (org_id, hour, endpoint, flow)
);

-- What the pruner walks.
CREATE INDEX usage_hours_old ON usage_hours (hour);

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
