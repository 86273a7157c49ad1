"""Submits a job within a trace, and prints the trace: submission, run and webhook.

    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 coatcheck up      # in one terminal
    COATCHECK_API_KEY=$(cat .coatcheck/dev-key) python -m examples.trace # in another

The program is the collector, on port 4318 or the given one, and also receives the webhook.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request, urlopen

from examples.trace.collector import Span, TraceCollector, tree

SECONDS_MAX = 60.0
DEFAULT_PORT = 4318  # the default of collectors of OTLP over HTTP


def main() -> None:
    url = os.environ.get("COATCHECK_URL", "http://127.0.0.1:8080")
    port = int(sys.argv[1]) if sys.argv[1:] else DEFAULT_PORT
    with TraceCollector(port=port) as collector:
        print(traced(url, os.environ["COATCHECK_API_KEY"], collector))


def traced(url: str, api_key: str, collector: TraceCollector, service: str = "demo") -> str:
    """Call ``POST /echo`` of a service, and return its trace as readable text."""
    trace_id = secrets.token_hex(16)
    # A caller that records traces would send its own span; this one has none.
    traceparent = f"00-{trace_id}-{secrets.token_hex(8)}-01"
    with receiver() as (webhook_url, arrived):
        request = Request(
            f"{url}/api/v1/orgs/default/services/{service}/async/echo",
            data=json.dumps({"message": "hello"}).encode(),
            headers={
                "Authorization": f"Bearer {api_key}",
                "Content-Type": "application/json",
                "X-Webhook-Url": webhook_url,
                "traceparent": traceparent,
            },
        )
        with urlopen(request, timeout=SECONDS_MAX) as answer:
            job = json.load(answer)
        if not arrived.wait(SECONDS_MAX):
            sys.exit(f"no webhook arrived for job {job['job_id']}")
        spans = collector.wait_for(trace_id, _is_whole, SECONDS_MAX)
    if not _is_whole(spans):
        sys.exit(f"the trace {trace_id} is incomplete: is OTEL_EXPORTER_OTLP_ENDPOINT set there?")
    return f"job {job['job_id']}, trace {trace_id}\n{tree(spans)}"


def _is_whole(spans: Sequence[Span]) -> bool:
    names = [span.name for span in spans]
    return all(
        any(name.startswith(kind) for name in names) for kind in ("POST ", "run ", "webhook ")
    )


@contextmanager
def receiver() -> Iterator[tuple[str, threading.Event]]:
    """A URL that receives webhooks, and an event that is set when one arrives."""
    arrived = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()
            arrived.set()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, name="receiver", daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/webhook", arrived
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    main()
