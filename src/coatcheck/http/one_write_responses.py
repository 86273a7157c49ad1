"""Writes a whole answer in one go, where our own server can: the common case of the hot routes.

Uvicorn takes the head and the body of an answer as two messages, looks through every header with
two patterns, and writes twice. An answer whose headers are all our own, to a whole request on a
connection that stays, needs none of it. Whatever is not so simple is left to Uvicorn.
"""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from coatcheck.http.response import RawHeaders, Response


def write_whole(cycle: RequestResponseCycle, response: Response, extra: RawHeaders) -> bool:
    """Answer the request of ``cycle``; False, and nothing is done, if that is Uvicorn's to do."""
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
