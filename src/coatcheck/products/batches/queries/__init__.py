"""The SQL statements of batches as functions."""
