"""Writes a whole response with one call to the transport: the common case of the hot routes.

Uvicorn takes the head and the body of a response as two messages, checks every header with two
patterns, and writes twice. A response needs none of that if this server made all of its headers,
the request is complete and the connection stays open. All other responses are left to Uvicorn.
"""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from coatcheck.http.response import RawHeaders, Response


def write_whole(cycle: RequestResponseCycle, response: Response, extra: RawHeaders) -> bool:
    """Write the response to the request of ``cycle``. Returns False, and writes nothing, if
    Uvicorn has to do it."""
    if (
        not cycle.keep_alive
        or cycle.more_body
        or cycle.disconnected
        or cycle.response_started
        or cycle.flow.write_paused
        or cycle.scope["method"] == "HEAD"
    ):
        return False
    body = response.body
    lines = [STATUS_LINE[response.status]]
    for name, value in cycle.default_headers:
        lines += (name, b": ", value, b"\r\n")
    for name, value in response.headers:
        lines += (name, b": ", value, b"\r\n")
    for name, value in extra:
        lines += (name, b": ", value, b"\r\n")
    lines += (b"content-length: %d\r\n\r\n" % len(body), body)
    cycle.response_started = True
    cycle.waiting_for_100_continue = False
    cycle.transport.write(b"".join(lines))
    cycle.response_complete = True
    cycle.message_event.set()
    cycle.on_response()
    return True
