"""The remote scenario: many jobs in flight elsewhere, and one small worker to look after them."""
