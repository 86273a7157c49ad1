"""The one door to the outside: which addresses may be called, and a client that keeps to them."""

from coatcheck.egress.guard import Guard, guard_of
from coatcheck.egress.receivers import receiver_guard
from coatcheck.egress.transport import charged_to

__all__ = ["Guard", "charged_to", "guard_of", "receiver_guard"]
