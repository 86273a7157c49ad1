-- The boot number of the worker that registered last; 0 if none has.
SELECT coalesce(max(w.boot), 0) AS boot FROM workers AS w
