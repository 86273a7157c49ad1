-- The id of this database, and the key that signs its callback URLs.
SELECT d.id, d.callback_key FROM deployment AS d
