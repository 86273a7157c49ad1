"""Soak runs: a long load, and a search for anything that grows.

``python -m chaos.soak --help``
"""
