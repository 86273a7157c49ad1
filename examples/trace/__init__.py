"""Prints the trace of one job, from its submission to its webhook: see ``__main__.py``."""
