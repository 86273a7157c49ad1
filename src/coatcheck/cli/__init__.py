"""The commands. Thin: each puts parts together, says what happens, and turns errors into words."""
