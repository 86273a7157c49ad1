"""Executors for handlers: on the event loop, in threads, or in processes of their own.

Empty on purpose: an isolated job's process imports this package, and pays for every import.
"""
