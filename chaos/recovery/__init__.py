"""Measures the time until work continues after the death of a worker or of the database.

``python -m chaos.recovery --help``
"""
