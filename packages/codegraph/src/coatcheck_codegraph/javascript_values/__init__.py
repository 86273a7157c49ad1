"""Follows values through JavaScript and TypeScript code: calls that names do not explain."""
