"""The batches surface: a job of one task or a million."""
