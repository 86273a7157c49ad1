"""Coatcheck and its peers, measured on the same work, the same PostgreSQL, in one run."""
