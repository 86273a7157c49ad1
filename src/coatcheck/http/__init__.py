"""The HTTP server in front of the engine: routing, auth, limits and job responses.

It never runs a job's handler; workers do.
"""
