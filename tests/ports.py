"""Ports that a process can be told to listen on."""

from __future__ import annotations

import random
import socket

_FIRST, _LAST = 10_000, 32_000
"""Below those that the system gives to whoever connects without asking for one: such a port, seen
free a moment ago, may be some connection's own end by the time that its process listens."""


def free_port() -> int:
    """A port of this machine's loopback that nobody listens on."""
    while True:
        port = random.SystemRandom().randint(_FIRST, _LAST)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue  # taken: another one
