"""The plan of an organisation: whether it may hand in new work."""

from coatcheck.http.billing.subscriptions import Subscriptions

__all__ = ["Subscriptions"]
