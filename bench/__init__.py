"""Benchmarks of Coatcheck and comparable systems, with the same work and PostgreSQL, in one run."""
