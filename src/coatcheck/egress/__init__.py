"""Outgoing connections: which addresses may be called, and HTTP clients that call no others."""

from coatcheck.egress.guard import Guard, guard_of, receiver_guard
from coatcheck.egress.transport import charged_to

__all__ = ["Guard", "charged_to", "guard_of", "receiver_guard"]
