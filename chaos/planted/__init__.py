"""Bugs that are planted on purpose, to see whether the lanes find them.

Each patch in ``patches`` breaks one invariant in the way a tired engineer would. Applied to a copy
of the tree, its lane has to fail: a lane that has never found a planted bug proves nothing.
"""
