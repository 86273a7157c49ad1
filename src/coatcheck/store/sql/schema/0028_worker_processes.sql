-- Which process a worker is, so that its death can be known before its lease ends.
--
-- `process` names one run of one process; all workers in it share it. A supervisor chooses it for what
-- it starts, and so knows which workers died when it has reaped one.
--
-- `host`, `pid` and `process_ticks` say where to look for it: `host` is the same only for processes that
-- see the same numbers mean the same processes (processes/identity.py). NULL where that cannot be said.
--
-- `temp_dir` holds the folders of its isolated jobs: whatever still lives in one is ended first.
--
-- `died_at`: since when it is known to be dead. Never unset: a process does not come back.
ALTER TABLE workers
    ADD COLUMN process       uuid NOT NULL DEFAULT gen_random_uuid(),
    ADD COLUMN host          text COLLATE "C",
    ADD COLUMN pid           integer,
    ADD COLUMN process_ticks bigint,
    ADD COLUMN temp_dir      text,
    ADD COLUMN died_at       timestamptz,
    ADD CONSTRAINT a_process_is_named_whole CHECK (
        host IS NULL OR (pid IS NOT NULL AND process_ticks IS NOT NULL)
    );
