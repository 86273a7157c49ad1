-- Whether there is more than one organisation: included by any.sql and explain.sql. An organisation
-- counts if it has a row, or a job that is still kept: a token of a trusted issuer may name one without
-- a row. Each part reads the beginning of an index.
(SELECT count(*) FROM (SELECT FROM orgs LIMIT 2) AS o) > 1
OR (
    SELECT true FROM jobs AS j
    WHERE j.org_id > (SELECT f.org_id FROM jobs AS f ORDER BY f.org_id LIMIT 1)
    ORDER BY j.org_id
    LIMIT 1
) IS NOT NULL
