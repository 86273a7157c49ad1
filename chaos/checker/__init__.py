"""Checks a chaos run by its evidence: the history from outside, and the database from inside.

Each file has one check and names its invariant of the design. ``check.py`` runs them all.
"""
