-- Work of the speech surface besides speaking a text with a voice: previews of voices that are only
-- described, and clones of voices. Which of them a task is, its job's endpoint says.
--
-- `voice_id` is NULL for a preview, which has a `description` instead; `clone_id` is the job that made
-- the clone a text is spoken with. The `text` of a clone is what is said in the recording, or empty.
ALTER TABLE generations
    ALTER COLUMN voice_id DROP NOT NULL,
    ADD COLUMN description text,
    ADD COLUMN clone_id uuid,
    ADD CONSTRAINT spoken_by_a_voice_or_a_description
        CHECK ((voice_id IS NULL) = (description IS NOT NULL));

-- Which transaction wrote a job's row as it is: by that the stream of a user's tasks knows what has
-- changed (speech/changes.sql).
GRANT SELECT (xmin) ON jobs TO coatcheck_user;
