-- Organisations, their workspaces and users, the users' API keys, and the state of an organisation's
-- plan at Stripe.
--
-- A token of a trusted issuer may name an organisation or a user without a row here: rows exist for
-- organisations and users that have a limit, a plan or a key. Each statement that adds a row names the
-- organisation that it must find.

CREATE TABLE orgs (
    org_id          text COLLATE "C" PRIMARY KEY,
    name            text NOT NULL,
    -- Stripe's word for the state of the plan. Used only while billing is on.
    subscription    text NOT NULL DEFAULT 'active',
    subscription_changed_at timestamptz,
    stripe_customer text COLLATE "C",
    rate_requests   integer CHECK (rate_requests > 0),
    rate_seconds    integer CHECK (rate_seconds > 0),
    backlog_max     integer CHECK (backlog_max >= 0),
    created_at      timestamptz NOT NULL DEFAULT now(),
    -- How long the calls of its registered services may take; NULL: as long as the deployment's
    -- setting allows. A call that hangs holds a slot of a worker for all of its timeout, so an operator
    -- decides who may have long ones.
    timeout_max     integer CHECK (timeout_max > 0),
    -- From which hour on its usage is sent to Stripe: the one in which it first had a customer while
    -- sending was on. Usage before that is not billed.
    stripe_metered_from timestamptz,
    CONSTRAINT org_rate_is_whole CHECK ((rate_requests IS NULL) = (rate_seconds IS NULL))
);

-- An event of Stripe looks up its customer here.
CREATE INDEX orgs_stripe_customer ON orgs (stripe_customer) WHERE stripe_customer IS NOT NULL;

CREATE TABLE workspaces (
    org_id       text COLLATE "C" NOT NULL,
    workspace_id text COLLATE "C" NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, workspace_id)
);

CREATE TABLE users (
    org_id     text COLLATE "C" NOT NULL,
    user_id    text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, user_id)
);

-- A key's secret is stored nowhere: `digest` is its HMAC-SHA256 under a pepper that the database does
-- not have. A revoked key keeps its row, so that its id is never used again.

CREATE TABLE api_keys (
    org_id        text COLLATE "C" NOT NULL,
    key_id        text COLLATE "C" NOT NULL,
    user_id       text COLLATE "C" NOT NULL,
    name          text NOT NULL,
    digest        bytea NOT NULL CHECK (octet_length(digest) = 32),
    scopes        text[] NOT NULL CHECK (scopes <@ ARRAY['submit', 'read', 'admin']),
    rate_requests integer CHECK (rate_requests > 0),
    rate_seconds  integer CHECK (rate_seconds > 0),
    created_at    timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz,
    revoked_at    timestamptz,
    PRIMARY KEY (org_id, key_id),
    CONSTRAINT key_rate_is_whole CHECK ((rate_requests IS NULL) = (rate_seconds IS NULL))
);

-- A request looks up its key here: a key names no organisation.
CREATE INDEX api_keys_by_id ON api_keys (key_id);

-- Each of an organisation's subscriptions at Stripe, as of the newest event. `changed_at` is Stripe's
-- time of that event, in whole seconds, and `rank` orders the events of one second.

CREATE TABLE stripe_subscriptions (
    org_id          text COLLATE "C" NOT NULL,
    subscription_id text COLLATE "C" NOT NULL,
    status          text NOT NULL,
    changed_at      timestamptz NOT NULL,
    rank            smallint NOT NULL,
    PRIMARY KEY (org_id, subscription_id)
);

-- An event looks up its subscription here if its customer is not, or no longer, the organisation's.
CREATE INDEX stripe_subscriptions_by_id ON stripe_subscriptions (subscription_id);

-- Events that were applied: a repeated one changes nothing.

CREATE TABLE stripe_events (
    org_id      text COLLATE "C" NOT NULL,
    event_id    text COLLATE "C" NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, event_id)
);
