"""The plan of an organisation: whether it may hand in new work."""

from coatcheck.control.billing.subscriptions import Subscriptions

__all__ = ["Subscriptions"]
