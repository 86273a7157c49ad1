"""The one door to the outside: which addresses may be called, and a client that keeps to them."""

from coatcheck.egress.guard import Guard
from coatcheck.egress.receivers import receiver_guard

__all__ = ["Guard", "receiver_guard"]
