"""Deliberate bugs that check whether the test runs find them.

Each patch in ``patches`` breaks one invariant in the way a tired engineer would. On a copy of the
tree with the patch, its lane must fail: a lane that has never found a planted bug proves nothing.
"""
