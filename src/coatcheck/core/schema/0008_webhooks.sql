-- Webhooks: an outbox. The statement that moves a job writes the rows of the messages about that
-- move, so that there is a row if and only if there was that move. The deliverers work from there.
--
-- A target is a URL of an organisation. Its id is computed from both, so that a submission knows it
-- beforehand (domain/webhooks.py). `failures` counts tries since the last that was answered 2xx: a
-- receiver that fails is tried one delivery at a time. `not_before` is what it asked for by
-- Retry-After. `disabled_at`: it answered 410. `used_at` is when a submission last named it, to the
-- hour; a target that is not used for long, and that nothing refers to, is removed.
--
-- An endpoint is a target that an organisation registers once for all its jobs. It says itself which
-- `events` it wants. Its id is its own, so that two endpoints may have one URL. `paused_at`: messages
-- gather until it is resumed. A secret of its own signs: `generation` says which, and the previous one
-- stays valid for a while after `rotated_at`. `pulled`: nothing is posted, messages are fetched, and
-- `pulled_at` is when they last were. `deleted_at`: it gets no more messages, and is here for the sake
-- of the log; it has no events then.

CREATE TABLE webhook_targets (
    org_id      text COLLATE "C" NOT NULL,
    id          uuid NOT NULL,
    url         text NOT NULL,
    failures    smallint NOT NULL DEFAULT 0,
    not_before  timestamptz,
    disabled_at timestamptz,
    created_at  timestamptz NOT NULL DEFAULT now(),
    used_at     timestamptz NOT NULL DEFAULT now(),
    generation  integer NOT NULL DEFAULT 1 CHECK (generation > 0),
    pulled      boolean NOT NULL DEFAULT false,
    paused_at   timestamptz,
    rotated_at  timestamptz,
    pulled_at   timestamptz,
    deleted_at  timestamptz,
    description text NOT NULL DEFAULT '',
    events      text[] COLLATE "C",
    PRIMARY KEY (org_id, id),
    CONSTRAINT deleted_endpoints_want_nothing CHECK (
        deleted_at IS NULL OR (events IS NULL AND disabled_at IS NOT NULL)
    )
) WITH (fillfactor = 70);

-- What the pruner walks, and the few that want nothing more.
CREATE INDEX webhook_targets_used ON webhook_targets (used_at);
CREATE INDEX webhook_targets_disabled ON webhook_targets (org_id, id) WHERE disabled_at IS NOT NULL;
-- The endpoints of an organisation; and whether there is any at all, which is what every statement
-- that moves jobs asks first.
CREATE INDEX webhook_targets_endpoints ON webhook_targets (org_id, id) WHERE events IS NOT NULL;
-- Those that are fetched from: the ones that nobody fetches from any more are removed.
CREATE INDEX webhook_targets_pulled ON webhook_targets (org_id, id)
    WHERE pulled AND events IS NOT NULL;

-- The targets that a job names. Written with the job, gone with it. `tells` says what each is sent:
--
--   1  the job's end
--   2  every move from one state to another
--   4  its phases: the moves that change what its caller is shown (webhooks/told.sql)
--
-- `jobs.webhook` has the largest of its rows', so that jobs without webhooks cost nothing. Besides:
--
--   0  the job is internal: a product runs it for itself, and nobody is sent its moves
--   3  it is a task, and its run's target is sent its failure
--   5  as 4, but its caller is not shown that it was claimed: it begins when it starts. The product
--      that claims it chooses between the two, with each claim

CREATE TABLE job_webhooks (
    org_id    text COLLATE "C" NOT NULL,
    job_id    uuid NOT NULL,
    target_id uuid NOT NULL,
    tells     smallint NOT NULL DEFAULT 1 CHECK (tells IN (1, 2, 4)),
    PRIMARY KEY (org_id, job_id, target_id)
);

-- What the pruner asks of a target.
CREATE INDEX job_webhooks_target ON job_webhooks (org_id, target_id);

-- The messages, and what became of them. `facts` are what the row of its subject may no longer say
-- when it is delivered; never a payload, a result or an error's text, which go when their job does:
-- those are read from it at the time of delivery.
--
-- While it is being posted it has a lease, fresh for every claim, and is due again when that ends.
-- `tries` begins anew when somebody has it sent again.

CREATE TABLE webhook_deliveries (
    org_id           text COLLATE "C" NOT NULL,
    id               uuid NOT NULL DEFAULT uuidv7(),
    target_id        uuid NOT NULL,
    -- `job`, `task`, `test`, `usage`; or a product's word for a group of runs.
    subject_kind     text NOT NULL,
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
) WITH (
    fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 1
);

-- What the deliverers walk: the targets that have messages waiting, then each one's oldest. And when
-- to look next.
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (org_id, target_id, due_at, id)
    WHERE status = 'pending';
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (due_at)
    WHERE status = 'pending';
-- What was not tried yet: a later message about the same subject waits for it.
CREATE INDEX webhook_deliveries_untried ON webhook_deliveries (org_id, target_id, subject_id, id)
    WHERE status = 'pending' AND tries = 0;
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

-- An organisation's signing secret is derived, not stored: this says which one is current. No row:
-- the first. The previous one stays valid for a while after a rotation.

CREATE TABLE webhook_secrets (
    org_id     text COLLATE "C" PRIMARY KEY,
    generation integer NOT NULL CHECK (generation > 1),
    rotated_at timestamptz NOT NULL
);
