-- Webhooks: an outbox. The statement that ends a job writes the row of what is to be told of it, so
-- that there is one if and only if there was that end; whoever delivers it works from there.
--
-- Who is told: a URL of an organisation. Its id is computed from both, so that whoever hands a job in
-- knows it beforehand (domain/webhooks.py). `failures` counts tries since the last that was answered
-- 2xx: a receiver that fails is tried one delivery at a time. `not_before` is what it asked for by
-- Retry-After. `disabled_at`: it answered 410. `used_at` is when it was last handed in, to the hour;
-- one that is not used for long, and that nothing refers to, is removed.

CREATE TABLE webhook_targets (
    org_id      text COLLATE "C" NOT NULL,
    id          uuid NOT NULL,
    url         text NOT NULL,
    failures    smallint NOT NULL DEFAULT 0,
    not_before  timestamptz,
    disabled_at timestamptz,
    created_at  timestamptz NOT NULL DEFAULT now(),
    used_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, id)
) WITH (fillfactor = 70);

-- What the pruner walks, and the few that want nothing more.
CREATE INDEX webhook_targets_used ON webhook_targets (used_at);
CREATE INDEX webhook_targets_disabled ON webhook_targets (org_id, id) WHERE disabled_at IS NOT NULL;

-- Which jobs are told of, and to whom. Written with the job, gone with it. `jobs.webhook` says that
-- there is such a row, so that jobs without one cost nothing.

CREATE TABLE job_webhooks (
    org_id    text COLLATE "C" NOT NULL,
    job_id    uuid NOT NULL,
    target_id uuid NOT NULL,
    PRIMARY KEY (org_id, job_id, target_id)
);

-- What the pruner asks of a target.
CREATE INDEX job_webhooks_target ON job_webhooks (org_id, target_id);

-- A batch names its target itself. The pruner asks whether any does.
CREATE INDEX batches_webhook_target ON batches (org_id, webhook_target)
    WHERE webhook_target IS NOT NULL;

-- What is to be told, and what became of it. `facts` are what the row of its subject may no longer
-- say when it is delivered; never a payload, a result or an error's text, which go when their job
-- does: those are read from it at the time of delivery.
--
-- While it is being posted it has a lease, fresh for every claim, and is due again when that ends.
-- `tries` begins anew when somebody has it sent again.

CREATE TABLE webhook_deliveries (
    org_id           text COLLATE "C" NOT NULL,
    id               uuid NOT NULL DEFAULT uuidv7(),
    target_id        uuid NOT NULL,
    subject_kind     text NOT NULL CHECK (subject_kind IN ('job', 'task', 'batch')),
    subject_id       uuid NOT NULL,
    run_id           uuid,
    event            text COLLATE "C" NOT NULL,
    facts            jsonb NOT NULL,
    status           text COLLATE "C" NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'delivered', 'exhausted', 'disabled')),
    tries            smallint NOT NULL DEFAULT 0,
    lease            uuid,
    due_at           timestamptz DEFAULT now(),
    last_try_at      timestamptz,
    last_status_code smallint,
    last_error       text,
    created_at       timestamptz NOT NULL DEFAULT now(),
    ended_at         timestamptz,
    PRIMARY KEY (org_id, id),

    CONSTRAINT due_until_it_ends CHECK ((status = 'pending') = (due_at IS NOT NULL)),
    CONSTRAINT ended_when_it_did CHECK ((status = 'pending') = (ended_at IS NULL)),
    CONSTRAINT leased_while_pending CHECK (lease IS NULL OR status = 'pending')
) WITH (fillfactor = 85);

-- What the deliverers walk: the targets that are to be told something, then each one's oldest. And
-- when to look next.
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (org_id, target_id, due_at, id)
    WHERE status = 'pending';
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (due_at)
    WHERE status = 'pending';
-- How many are being posted to each target.
CREATE INDEX webhook_deliveries_leased ON webhook_deliveries (org_id, target_id)
    WHERE lease IS NOT NULL;
-- The log, of one job, or of what became of deliveries one way.
CREATE INDEX webhook_deliveries_subject ON webhook_deliveries (org_id, subject_id, id);
CREATE INDEX webhook_deliveries_status ON webhook_deliveries (org_id, status, id);
-- What the pruner walks, and what it asks of a target.
CREATE INDEX webhook_deliveries_ended ON webhook_deliveries (ended_at)
    WHERE ended_at IS NOT NULL;
CREATE INDEX webhook_deliveries_target ON webhook_deliveries (org_id, target_id, id);

ALTER TABLE webhook_deliveries SET (
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 1
);

-- An organisation's signing secret is derived, not stored: this says which one it is by now. No row:
-- the first. The one before signs along for a while after a rotation.

CREATE TABLE webhook_secrets (
    org_id     text COLLATE "C" PRIMARY KEY,
    generation integer NOT NULL CHECK (generation > 1),
    rotated_at timestamptz NOT NULL
);
