-- What workers publish. The catalogue's services of code (`services`, source 'code') are derived from it,
-- endpoint by endpoint: services/resolve.sql says how.
--
-- One row for each definition of an endpoint that the code of some worker declares, or declared a while
-- ago. Definitions belong to no worker: `workers.publishes` names those of each, so a fleet that restarts
-- writes none anew, and what a worker publishes ends with its row.
--
--   digest          names the definition; equal definitions are one row
--   position        where its service declares it, for lists
--   published_at    when it was first published: of two that live workers publish, the later one is in force
--   unserved_since  since when no live worker publishes it; NULL while one does
--
-- `org_id` is empty, as that of services of code is: they are everybody's.

CREATE TABLE published_endpoints (
    org_id         text COLLATE "C" NOT NULL DEFAULT '' CHECK (org_id = ''),
    service_id     text COLLATE "C" NOT NULL,
    version        integer NOT NULL,
    key            text COLLATE "C" NOT NULL,
    digest         text COLLATE "C" NOT NULL GENERATED ALWAYS AS (md5(definition::text)) STORED,
    definition     jsonb NOT NULL,
    position       integer NOT NULL,
    published_at   timestamptz NOT NULL DEFAULT now(),
    unserved_since timestamptz,
    PRIMARY KEY (org_id, service_id, version, key, digest)
);

ALTER TABLE workers ADD COLUMN publishes text[] NOT NULL DEFAULT '{}';

-- What the catalogue has of code stays callable. A concurrency limit that code declares is part of the
-- definition from now on.
INSERT INTO published_endpoints (service_id, version, key, definition, position, published_at)
SELECT s.service_id, v.number::integer, e.definition ->> 'key',
       e.definition || jsonb_build_object('concurrency', (
           SELECT c.held_max FROM concurrency_limits AS c
           WHERE c.org_id = '*' AND c.scope = 'endpoint' AND c.declared
             AND c.name = s.service_id || CASE v.number WHEN '1' THEN '' ELSE '.v' || v.number END
                 || '.' || (e.definition ->> 'key')
       )),
       e.position, s.updated_at
FROM services AS s
CROSS JOIN LATERAL jsonb_each(s.definition -> 'versions') AS v (number, version)
CROSS JOIN LATERAL jsonb_array_elements(v.version -> 'endpoints')
    WITH ORDINALITY AS e (definition, position)
WHERE s.source = 'code';
