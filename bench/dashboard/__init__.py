"""How long the dashboard's pages take, with a short history and with a long one."""
