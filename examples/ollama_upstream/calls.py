"""One call of the API, with the faults planned for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from examples.ollama_upstream.exchange import Exchange
from examples.ollama_upstream.faults import Fault
from examples.ollama_upstream.records import Request


class Stopped(Exception):
    """Ends the response by cutting its connection."""


@dataclass(slots=True)
class Call:
    exchange: Exchange
    request: Request
    body: dict[str, Any] = field(default_factory=dict)
    fault: Fault | None = None
    cleared: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the faults that were planned at its arrival are cleared."""
