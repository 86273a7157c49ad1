"""The batches product: jobs of one task or a million."""
