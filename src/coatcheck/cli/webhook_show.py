"""Webhook endpoints and deliveries as text."""

from __future__ import annotations

from coatcheck.client import WebhookDelivery, WebhookEndpoint


def endpoint_line(endpoint: WebhookEndpoint) -> str:
    """An endpoint on one line."""
    where = "(fetched from)" if endpoint.pulled else endpoint.url or ""
    parts = [endpoint.id, f"{endpoint.status:<8}", where, ",".join(endpoint.events)]
    if endpoint.description:
        parts.append(f"({endpoint.description})")
    return _printable("  ".join(parts))


def delivery_line(delivery: WebhookDelivery) -> str:
    """A delivery on one line: when, what of what, to whom, and what came of it."""
    made = (
        "" if delivery.created_at is None else f"{delivery.created_at.astimezone():%m-%d %H:%M:%S}"
    )
    parts = [
        delivery.id,
        made,
        delivery.event,
        delivery.job_id or "-",
        delivery.url or "(fetched)",
        outcome(delivery),
    ]
    return _printable("  ".join(parts))


def outcome(delivery: WebhookDelivery) -> str:
    """What came of a delivery so far."""
    said = delivery.status
    if delivery.paused:
        said = "paused"
    if delivery.tries > 1:
        said += f" after {delivery.tries} tries"
    elif delivery.status == "pending" and delivery.tries == 1:
        said += " after 1 try"
    why = delivery.last_error
    if why is None and delivery.last_status_code is not None:
        why = f"answered {delivery.last_status_code}"
    if delivery.status == "pending" and not delivery.tries:
        return f"{said}; before that: {why}" if why else said  # it is sent again
    if why:
        said += f": {why}"
    if delivery.status == "pending" and delivery.next_try_at is not None:
        said += f"; again at {delivery.next_try_at.astimezone():%m-%d %H:%M:%S}"
    return said


def _printable(text: str) -> str:
    """What others have named is shown on its line, whatever is in it."""
    return "".join(c if c.isprintable() else " " for c in text).rstrip()
