-- From here to the end of the transaction, read as somebody who is shown this user's rows only. What
-- is set so is gone with the transaction, whatever becomes of it.
--
-- $1 organisation   $2 user
SELECT set_config('role', 'coatcheck_user', true),
       set_config('coatcheck.org', $1, true),
       set_config('coatcheck.user', $2, true)
