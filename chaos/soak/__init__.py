"""The soak lane: a load for long, and a look for what grows.

``python -m chaos.soak --help``
"""
