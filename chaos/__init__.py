"""Chaos tests: a real deployment, a mixed load, faults from a seeded plan, and a checker.

``python -m chaos --help``; the README beside this file says what each lane is for.
"""
