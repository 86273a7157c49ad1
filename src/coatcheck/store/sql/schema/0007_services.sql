-- The services that can be called, and what each worker serves.
--
--   source  org_id   who writes it
--   code    ''       workers, when they start: what their code declares, for every organisation
--   http    an org   that organisation, over HTTP: an upstream that Coatcheck calls
--
-- `definition` is {"versions": {"1": {"endpoints": [...]}}}; domain/catalogue.py says what an
-- endpoint has. It is read whole and cached, so nothing in it is a column of its own.

CREATE TABLE services (
    org_id       text COLLATE "C" NOT NULL,
    service_id   text COLLATE "C" NOT NULL,
    workspace_id text COLLATE "C" NOT NULL,
    source       text NOT NULL CHECK (source IN ('code', 'http')),
    definition   jsonb NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, service_id),
    CONSTRAINT code_belongs_to_everybody CHECK ((source = 'code') = (org_id = ''))
);

-- What a worker serves: the engine's endpoints, in which lanes. A job of an endpoint that no live
-- worker serves is shown as stalled.
ALTER TABLE workers
    ADD COLUMN endpoints text[] NOT NULL DEFAULT '{}',
    ADD COLUMN lanes text[] NOT NULL DEFAULT '{urgent,standard,bulk}';
