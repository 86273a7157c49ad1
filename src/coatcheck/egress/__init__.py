"""The one door to the outside: which addresses may be called, and a client that keeps to them."""

from coatcheck.egress.guard import Guard

__all__ = ["Guard"]
