"""Attacks on a real deployment: what one caller can cost the others. See ``__main__``."""
