"""The SQL statements of batches, each called by one function."""
