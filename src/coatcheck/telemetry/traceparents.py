"""W3C traceparent headers: ``00-<trace id>-<span id>-<flags>``."""

from __future__ import annotations

import re
from typing import Final

HEADER: Final = "traceparent"

_FORM: Final = re.compile(
    r"00-(?!0{32})(?P<trace>[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-(?P<flags>[0-9a-f]{2})"
)
_SAMPLED: Final = 0x01


def is_valid(traceparent: str) -> bool:
    """Whether it has the format of W3C's version 00, which is also ours."""
    return _FORM.fullmatch(traceparent) is not None


def is_sampled(traceparent: str) -> bool:
    """Whether its sender records the trace."""
    form = _FORM.fullmatch(traceparent)
    return form is not None and bool(int(form["flags"], 16) & _SAMPLED)


def trace_id_of(traceparent: str | None) -> str | None:
    """The trace id, 32 hexadecimal digits, as a trace viewer shows it."""
    form = None if traceparent is None else _FORM.fullmatch(traceparent)
    return None if form is None else form["trace"]
