"""Formats webhook endpoints and deliveries as text."""

from __future__ import annotations

from coatcheck.client import WebhookDelivery, WebhookEndpoint


def endpoint_line(endpoint: WebhookEndpoint) -> str:
    """An endpoint on one line."""
    where = "(polled)" if endpoint.pulled else endpoint.url or ""
    parts = [endpoint.id, f"{endpoint.status:<8}", where, ",".join(endpoint.events)]
    if endpoint.description:
        parts.append(f"({endpoint.description})")
    return _printable("  ".join(parts))


def delivery_line(delivery: WebhookDelivery) -> str:
    """A delivery on one line: time, event, job, URL and outcome."""
    made = (
        "" if delivery.created_at is None else f"{delivery.created_at.astimezone():%m-%d %H:%M:%S}"
    )
    parts = [
        delivery.id,
        made,
        delivery.event,
        delivery.job_id or "-",
        delivery.url or "(polled)",
        outcome(delivery),
    ]
    return _printable("  ".join(parts))


def outcome(delivery: WebhookDelivery) -> str:
    """The outcome of a delivery so far."""
    text = delivery.status
    if delivery.paused:
        text = "paused"
    if delivery.tries > 1:
        text += f" after {delivery.tries} attempts"
    elif delivery.status == "pending" and delivery.tries == 1:
        text += " after 1 attempt"
    why = delivery.last_error
    if why is None and delivery.last_status_code is not None:
        why = f"HTTP {delivery.last_status_code}"
    if delivery.status == "pending" and not delivery.tries:
        return f"{text}; last attempt: {why}" if why else text  # it is being resent
    if why:
        text += f": {why}"
    if delivery.status == "pending" and delivery.next_try_at is not None:
        text += f"; next attempt at {delivery.next_try_at.astimezone():%m-%d %H:%M:%S}"
    return text


def _printable(text: str) -> str:
    """The text on one line, without control characters."""
    return "".join(c if c.isprintable() else " " for c in text).rstrip()
