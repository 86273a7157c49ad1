"""A service whose handler logs, and records a span of its own by OpenTelemetry's API."""

from __future__ import annotations

import logging

from opentelemetry import trace

from coatcheck import Service

demo = Service("demo")


@demo.post("/echo")
def echo(message: str) -> dict[str, str]:
    """Gives the message back, from a thread."""
    with trace.get_tracer("tests").start_as_current_span("the handler's own"):
        logging.getLogger("tests").warning("echoing")
        return {"message": message}
