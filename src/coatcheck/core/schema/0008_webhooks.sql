-- Webhooks: an outbox. The statement that changes a job's state writes the deliveries of that change, so
-- that there is a row if and only if there was the change. The deliverers work from there.
--
-- A target is a URL of an organisation. Its id is computed from both, so that a submission knows it
-- beforehand (domain/webhooks.py). `failures` counts tries since the last 2xx: a failing receiver is sent
-- one delivery at a time. `not_before` is its Retry-After. `disabled_at`: it answered 410. `used_at` is
-- when a submission last named it, to the hour; a target that was not used for long, and that nothing
-- refers to, is deleted.
--
-- An endpoint is a target that an organisation registers once for all its jobs. `events` are those that
-- it subscribed to. Its id is its own, so that two endpoints may have one URL. `paused_at`: messages
-- gather until it is resumed. It has its own signing secret: `generation` says which, and the previous one
-- stays valid for a while after `rotated_at`. `pulled`: nothing is posted; messages are fetched, most
-- recently at `pulled_at`. `deleted_at`: it gets no more messages, and stays for the sake of the log,
-- without events.

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

-- Retention walks the first; the second has the few disabled targets.
CREATE INDEX webhook_targets_used ON webhook_targets (used_at);
CREATE INDEX webhook_targets_disabled ON webhook_targets (org_id, id) WHERE disabled_at IS NOT NULL;
-- The endpoints of an organisation; and whether there is any, which every statement that changes states
-- checks first.
CREATE INDEX webhook_targets_endpoints ON webhook_targets (org_id, id) WHERE events IS NOT NULL;
-- Pulled endpoints: those that nobody pulls from any more are deleted.
CREATE INDEX webhook_targets_pulled ON webhook_targets (org_id, id)
    WHERE pulled AND events IS NOT NULL;

-- The targets that a job names, written and deleted with it. `tells` says what each is sent:
--
--   1  the job's end
--   2  every state change
--   4  its phases: the moves that change what its caller is shown (`receivers` in core/queries/webhooks.sql)
--
-- `jobs.webhook` has the largest of its rows' values, so that jobs without webhooks cost nothing. Also:
--
--   0  the job is internal: a product runs it for itself, and nobody is sent its state changes
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

-- Retention looks up here whether a job refers to a target.
CREATE INDEX job_webhooks_target ON job_webhooks (org_id, target_id);

-- The messages and their outcomes. `facts` hold what the row of the subject may no longer say at
-- delivery; never a payload, a result or an error's text, which are deleted with their job and read from
-- it at delivery.
--
-- While a delivery is being posted it has a lease, new for every claim, and is due again when that ends.
-- `tries` starts anew when it is sent again on request.

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

-- The deliverers walk these: the targets with pending messages, then each one's oldest; and when to look
-- next.
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (org_id, target_id, due_at, id)
    WHERE status = 'pending';
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (due_at)
    WHERE status = 'pending';
-- Untried deliveries: a later message about the same subject waits for them.
CREATE INDEX webhook_deliveries_untried ON webhook_deliveries (org_id, target_id, subject_id, id)
    WHERE status = 'pending' AND tries = 0;
-- How many are being posted to each target.
CREATE INDEX webhook_deliveries_leased ON webhook_deliveries (org_id, target_id)
    WHERE lease IS NOT NULL;
-- The log, of one job, or of one status.
CREATE INDEX webhook_deliveries_subject ON webhook_deliveries (org_id, subject_id, id);
CREATE INDEX webhook_deliveries_status ON webhook_deliveries (org_id, status, id);
-- Retention walks the first, and looks up in the second whether a delivery refers to a target.
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
