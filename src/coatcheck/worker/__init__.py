"""The worker: claims jobs, runs them, records their outcomes and cleans up after them."""
