-- Plain functions run in threads, which cannot be stopped. An endpoint whose handlers go on after they
-- were given up is not served by that worker until they end: this says which, and for how many
-- threads, to whoever asks why a job waits. Empty for nearly every worker at nearly every moment.
ALTER TABLE workers ADD COLUMN threads_held jsonb NOT NULL DEFAULT '{}';
