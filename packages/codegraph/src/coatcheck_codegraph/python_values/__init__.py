"""Follows values through Python code, to find calls that names alone do not explain (ADR 0049)."""
