"""Follows values through JavaScript and TypeScript, to find calls that names do not explain."""
