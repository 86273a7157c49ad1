"""The fuzz lane: what the tests try, tried for longer, and what is too long for them.

``python -m chaos.fuzz --help``
"""
