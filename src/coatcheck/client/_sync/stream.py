"""Follows the events of one job or of many, over as many connections as necessary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx2

from coatcheck.client._sync.exchange import Exchange
from coatcheck.client.errors import ApiError, ConnectionFailed
from coatcheck.client.events import EVENT_BYTES_MAX, Events, Reader
from coatcheck.client.request_headers import Headers
from coatcheck.client.retries import Stopwatch

SILENCE_SECONDS_MAX: Final = 45.0
"""The server sends something every 15 seconds; after three times that, the connection is dead."""

STEADY_SECONDS: Final = 10.0
"""A connection that lasted this long did not fail: proxies close long-lived ones."""


def follow(
    exchange: Exchange,
    url: str,
    after: str | None,
    learn: Callable[[Mapping[str, Any]], None],
) -> Events:
    """Every event after the one with the id ``after``, until the job has ended; for many jobs,
    endlessly.

    A broken connection is restored, and the server continues after the last event seen. ``learn``
    gets the job's state before the event that shows it.
    """
    reader = Reader(after)
    failures = 0
    while True:
        connected = Stopwatch()
        error: ApiError | ConnectionFailed
        try:
            with exchange.open(
                "GET", url, headers=_headers(reader), silence=SILENCE_SECONDS_MAX
            ) as response:
                for sent in httpx2.EventSource(response, EVENT_BYTES_MAX):
                    event = reader.read(sent)
                    if event is None:
                        continue
                    failures = 0
                    if event.name in ("state", "end"):
                        learn(event.data)
                    yield event
                    if event.name == "end":
                        return
            error = ConnectionFailed("the server ended the stream before the job had ended")
        except (ApiError, ConnectionFailed) as failed:
            error = failed
        if connected.seconds >= STEADY_SECONDS:
            failures = 0
        failures += 1
        exchange.wait_to_retry(error, failures, at_least=reader.retry_seconds)


def _headers(reader: Reader) -> Headers:
    headers = [(b"accept", b"text/event-stream"), (b"cache-control", b"no-store")]
    if reader.last_id is not None:
        headers.append((b"last-event-id", reader.last_id.encode()))
    return headers
