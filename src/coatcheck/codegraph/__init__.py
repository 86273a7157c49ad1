"""Structural graphs of source code: files parsed one by one, names resolved across them."""
