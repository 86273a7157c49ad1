"""Judges a chaos run by what it left: the history outside the system, and the database inside it.

One check a file, each naming the invariant of the design that it asks about. ``check.py`` runs
them all.
"""
