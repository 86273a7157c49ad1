"""Distributed tracing: a submission, its runs and its webhooks belong to one trace.

A request may carry a W3C ``traceparent``. Its job keeps it, and everything done for the job passes
it on: handlers find it as OpenTelemetry's current context; upstreams, remotes and webhook
receivers get it as a header. That needs no set-up here.

With ``OTEL_EXPORTER_OTLP_ENDPOINT`` set, processes also record their own spans and export them by
OTLP over HTTP. Without it, OpenTelemetry is not even imported until the first job that belongs to a
trace.

Spans contain ids and names, never payloads; of an error they contain its type and no text.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal

from coatcheck.telemetry import context
from coatcheck.telemetry.traceparents import is_sampled, is_valid
from coatcheck.version import __version__

_FLUSH_SECONDS_MAX: Final = 5.0


class SpanExport:
    """The tracer of a process, and the thread that sends its spans."""

    def __init__(self, kind: str) -> None:
        # Imported late: a process without an exporter must not pay for these.
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import (
            SERVICE_INSTANCE_ID,
            SERVICE_NAME,
            SERVICE_VERSION,
            Resource,
        )
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

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


if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

    from coatcheck.telemetry.tracing import SpanExport

Attributes = Mapping[str, str | int | float | bool]
Kind = Literal["server", "consumer", "client", "internal"]

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_TRUE: Final = "true"

_tracer: Tracer | None = None
_export: SpanExport | None = None


class TraceSpan:
    """One span being recorded, or a no-op with the same interface if nothing is recorded."""

    __slots__ = ("_span",)

    def __init__(self, span: Span | None = None) -> None:
        self._span = span

    def note(self, attributes: Attributes) -> None:
        """Add attributes."""
        if self._span is not None:
            self._span.set_attributes(attributes)

    def failed(self, why: str) -> None:
        """Mark it as failed. ``why`` is a code or a type, never text that may quote data."""
        if self._span is not None:
            from opentelemetry.trace import StatusCode

            self._span.set_status(StatusCode.ERROR, why)


_NOT_RECORDED: Final = TraceSpan()


def is_configured(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether OpenTelemetry's variables configure an exporter."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == _TRUE:
        return False
    if environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return False
    return any(environment.get(name, "").strip() for name in _ENDPOINTS)


def start(kind: str) -> bool:
    """Start recording and exporting if the environment configures it; returns whether it does.

    ``kind`` is the kind of process. It becomes the service name, unless OTEL_SERVICE_NAME is set.
    """
    global _export, _tracer  # one per process, like its logs
    if _tracer is None and is_configured():
        from coatcheck.telemetry.tracing import SpanExport

        _export = SpanExport(kind)
        _tracer = _export.tracer
    return _tracer is not None


def stop() -> None:
    """Export the remaining spans, for a few seconds at most. Blocks; call it last."""
    global _export, _tracer
    if _export is not None:
        _export.close()
    _export = _tracer = None


def is_on() -> bool:
    """Whether this process records spans."""
    return _tracer is not None


def current() -> str | None:
    """The traceparent to pass to whatever starts now; None outside of a trace."""
    if _tracer is None:
        return context.traceparent.get()
    from opentelemetry.trace import get_current_span

    return written(get_current_span()) or context.traceparent.get()


@contextmanager
def span(name: str, kind: Kind, parent: str | None, attributes: Attributes) -> Iterator[TraceSpan]:
    """Run a block as a child span of ``parent``, or as the root of a new trace without one.

    It is OpenTelemetry's current span meanwhile. An exception marks it as failed, with its type.
    If nothing is recorded, ``parent`` is passed on unchanged.
    """
    if _tracer is None:
        if parent is None:
            yield _NOT_RECORDED
            return
        with continuing(parent):
            yield _NOT_RECORDED
        return
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind, set_span_in_context

    above = _remote(parent) if parent is not None and is_valid(parent) else Context()
    begun = _tracer.start_span(
        name,
        context=above,
        kind=SpanKind[kind.upper()],
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    )
    part = TraceSpan(begun)
    try:
        with _as_current(set_span_in_context(begun, above), written(begun)):
            yield part
    except BaseException as error:
        part.failed(type(error).__name__)
        raise
    finally:
        begun.end()


@contextmanager
def continuing(traceparent: str) -> Iterator[None]:
    """Make ``traceparent`` the current context, ours and OpenTelemetry's, without a new span."""
    if not is_valid(traceparent):
        yield
        return
    with _as_current(_remote(traceparent), traceparent):
        yield


@contextmanager
def passing(traceparent: str) -> Iterator[None]:
    """Remember a request's traceparent for the jobs it submits, if its sender records it."""
    if not is_sampled(traceparent):
        yield
        return
    token = context.traceparent.set(traceparent)
    try:
        yield
    finally:
        context.traceparent.reset(token)


def written(span: Span) -> str | None:
    """A span as a traceparent; None if the span is not valid."""
    about = span.get_span_context()
    if not about.is_valid:
        return None
    return f"00-{about.trace_id:032x}-{about.span_id:016x}-{about.trace_flags:02x}"


@contextmanager
def _as_current(theirs: Context, ours: str | None) -> Iterator[None]:
    from opentelemetry.context import attach, detach

    token = context.traceparent.set(ours)
    attached = attach(theirs)
    try:
        yield
    finally:
        detach(attached)
        context.traceparent.reset(token)


def _remote(traceparent: str) -> Context:
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        NonRecordingSpan,
        SpanContext,
        TraceFlags,
        set_span_in_context,
    )

    _, trace_id, span_id, flags = traceparent.split("-")
    about = SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )
    return set_span_in_context(NonRecordingSpan(about), Context())
