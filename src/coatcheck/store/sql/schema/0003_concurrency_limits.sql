-- How many jobs may be held at once. A permit is a held job: nothing is counted up or down, so
-- nothing can drift, and a killed worker's permits come back when its jobs are rescued.
--
--   scope      org_id   name        caps
--   endpoint   '*'      endpoint    that endpoint, all organisations together
--   endpoint   an org   endpoint    that endpoint, for that organisation
--   org        an org   ''          everything of that organisation
--   flow       an org   flow        one flow of that organisation
--
-- `declared` marks those that a worker's code declares; the others were set through the engine.

CREATE TABLE concurrency_limits (
    org_id      text COLLATE "C" NOT NULL,
    scope       text NOT NULL CHECK (scope IN ('endpoint', 'org', 'flow')),
    name        text COLLATE "C" NOT NULL,
    held_max    integer NOT NULL CHECK (held_max >= 0),
    declared    boolean NOT NULL DEFAULT false,
    PRIMARY KEY (org_id, scope, name)
);
