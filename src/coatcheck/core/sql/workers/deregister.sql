-- Deregister a worker that stops cleanly and holds nothing.
DELETE FROM workers WHERE boot = $1
