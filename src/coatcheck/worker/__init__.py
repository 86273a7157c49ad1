"""The data plane: claims jobs, runs them, finishes them, cleans up after them."""
