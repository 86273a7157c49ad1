-- How many of its slots of each of `workers.lanes` a worker keeps for organisations that hold none,
-- where there is more than one organisation: so that whoever waits can be told.

ALTER TABLE workers ADD COLUMN reserved integer[] NOT NULL DEFAULT '{}';
