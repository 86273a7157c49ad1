"""The routes, one concern a module; each declares what it answers beside the code that does."""
