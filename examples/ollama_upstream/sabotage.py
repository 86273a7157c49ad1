"""Injects the planned faults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from examples.ollama_upstream.calls import Call, Stopped
from examples.ollama_upstream.failures import Refused
from examples.ollama_upstream.faults import Fault

_PIECE_OF_A_LONG_LINE = b"x" * 65_536


class Saboteur:
    """``go_away`` ends the whole server."""

    def __init__(self, go_away: Callable[[Fault], Awaitable[None]]) -> None:
        self._go_away = go_away

    async def strike(self, call: Call) -> bool:
        """Apply the call's fault, if it has one. True if the answer continues after it."""
        exchange, fault = call.exchange, call.fault
        if fault is None or call.cleared.is_set():
            return True
        match fault.kind:
            case "hang":
                await call.cleared.wait()
                return True
            case "long_line":
                for _ in range(0, fault.size_bytes, len(_PIECE_OF_A_LONG_LINE)):
                    await exchange.raw(_PIECE_OF_A_LONG_LINE)
                await exchange.raw(b"\n")
                return True
            case "error_line" if exchange.answering:
                await exchange.line({"error": fault.message})
                await exchange.end()
            case "error" | "error_line":
                raise Refused(fault.status, fault.message, tuple(fault.headers.items()))
            case "garbage":
                await exchange.raw(b"<html>502 Bad Gateway</html>\n")
                await exchange.end()
            case "early_end":
                await exchange.end()
            case "go_away":
                await self._go_away(fault)
                raise Stopped
            case "cut" | "endless":
                raise Stopped
        return False
