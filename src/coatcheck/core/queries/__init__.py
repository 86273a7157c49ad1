"""The SQL statements of the core as functions, one module per aggregate."""
