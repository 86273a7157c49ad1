"""Logs, metrics and traces of the processes. They never contain payloads or secrets."""
