"""Processes of this machine: which one this is, whether another is gone, what it left behind."""
