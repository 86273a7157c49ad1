-- Until the end of the transaction, read as the role that sees only this user's rows. The settings are
-- local to the transaction, so they end with it, committed or not.
--
-- $1 organisation   $2 user
SELECT set_config('role', 'coatcheck_user', true),
       set_config('coatcheck.org', $1, true),
       set_config('coatcheck.user', $2, true)
