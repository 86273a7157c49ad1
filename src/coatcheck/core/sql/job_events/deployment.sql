-- The id of this database.
SELECT id FROM deployment
