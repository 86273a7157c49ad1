"""Fuzz runs: property tests with more examples, and tests that take too long for `make test`.

``python -m chaos.fuzz --help``
"""
