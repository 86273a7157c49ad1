"""Exports recorded spans to an OpenTelemetry collector. Imported only if one is configured.

The variables are OpenTelemetry's own, and its SDK reads them: OTEL_EXPORTER_OTLP_ENDPOINT and
OTEL_EXPORTER_OTLP_HEADERS, OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG, OTEL_SERVICE_NAME,
OTEL_RESOURCE_ATTRIBUTES, OTEL_BSP_* (docs/how-to/trace.md).
"""

from __future__ import annotations

import os
import socket
import threading
from typing import Final

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from coatcheck.version import __version__

_FLUSH_SECONDS_MAX: Final = 5.0


class Export:
    """The tracer of a process, and the thread that sends its spans."""

    def __init__(self, kind: str) -> None:
        ours = {
            SERVICE_NAME: f"coatcheck-{kind}",
            SERVICE_VERSION: __version__,
            SERVICE_INSTANCE_ID: f"{socket.gethostname()}:{os.getpid()}",
        }
        # The variables take precedence over our values.
        configured = {
            name: value
            for name, value in Resource.create().attributes.items()
            if not (name == SERVICE_NAME and str(value).startswith("unknown_service"))
        }
        self._provider = TracerProvider(
            resource=Resource({**ours, **configured}), shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        # So that spans that handlers record with OpenTelemetry's own API are exported, too.
        trace.set_tracer_provider(self._provider)
        self.tracer = self._provider.get_tracer("coatcheck", __version__)

    def close(self) -> None:
        """Send remaining spans; give up after a few seconds."""
        # In a thread that may be left behind: a hanging collector must not block the exit.
        flush = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        flush.start()
        flush.join(_FLUSH_SECONDS_MAX)
