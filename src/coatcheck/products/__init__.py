"""The products: one folder each, found by entry point. None of them imports another."""
