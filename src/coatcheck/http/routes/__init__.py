"""The routes of the platform, one topic a module: each declares its routes and handles them."""
