-- Which database this is, and what its callback URLs are signed with.
SELECT d.id, d.callback_key FROM deployment AS d
