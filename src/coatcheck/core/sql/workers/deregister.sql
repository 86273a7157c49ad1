-- A worker process ends in good order, holding nothing.
DELETE FROM workers WHERE boot = $1
