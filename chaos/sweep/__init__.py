"""Kills every possible process at every named crash point.

The scenarios are those of ``tests/e2e``, which ``make test`` runs once, with the process itself as
the victim. A sweep runs them with all victims, and writes the results into a table.
"""
