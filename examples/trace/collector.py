"""A local trace collector: receives OTLP over HTTP and stores it in memory."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2


@dataclass(frozen=True)
class Span:
    """One part of a trace."""

    trace_id: str
    span_id: str
    parent_id: str
    service: str
    name: str
    began_ns: int
    ended_ns: int
    attributes: Mapping[str, str]
    failed: bool


class TraceCollector:
    """A context manager that listens on a local port; 0 is any free port."""

    def __init__(self, port: int = 4318) -> None:
        self._came = threading.Condition()
        self._spans: list[Span] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self._take))
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="collector", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def endpoint(self) -> str:
        """The value for OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def wait_for(
        self, trace_id: str, is_whole: Callable[[Sequence[Span]], bool], seconds: float
    ) -> list[Span]:
        """The spans of a trace when they are complete, or those there are after the timeout."""

        def of_trace() -> list[Span]:
            return [span for span in self._spans if span.trace_id == trace_id]

        with self._came:
            self._came.wait_for(lambda: is_whole(of_trace()), seconds)
            return of_trace()

    def _take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self._came:
            self._spans.extend(_spans(request))
            self._came.notify_all()


def tree(spans: Sequence[Span]) -> str:
    """The spans as lines: each under its parent, with its start and its duration."""
    began_ns = min(span.began_ns for span in spans)
    known = {span.span_id for span in spans}

    def lines(parent: Callable[[Span], bool], indent: str) -> Iterator[str]:
        for span in sorted(filter(parent, spans), key=lambda span: span.began_ns):
            after = (span.began_ns - began_ns) / 1e6
            took = (span.ended_ns - span.began_ns) / 1e6
            name = f"{indent}{span.name}"
            sign = "  FAILED" if span.failed else ""
            yield f"{name:<62} {span.service:<18} +{after:8.1f} ms {took:8.1f} ms{sign}"
            yield from lines(lambda child, of=span: child.parent_id == of.span_id, indent + "  ")

    return "\n".join(lines(lambda span: span.parent_id not in known, ""))


def _handler(take: Callable[[bytes], None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            take(body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            """Log nothing: the spans are printed as a trace."""

    return Handler


def _spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for resource in request.resource_spans:
        service = _attributes(resource.resource.attributes).get("service.name", "")
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Span(
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    service,
                    span.name,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    _attributes(span.attributes),
                    span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
                )


def _attributes(pairs: Sequence[KeyValue]) -> dict[str, str]:
    return {
        pair.key: str(getattr(pair.value, pair.value.WhichOneof("value") or "string_value"))
        for pair in pairs
    }
