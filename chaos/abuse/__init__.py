"""Attacks on a real deployment, and their cost for other callers. See ``__main__``."""
