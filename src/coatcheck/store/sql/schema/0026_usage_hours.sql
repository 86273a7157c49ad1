-- Usage by the hour.
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
