"""Redacts secrets and customers' values from text that people will read.

URLs contain passwords, and PostgreSQL quotes whole rows in the DETAIL of a constraint error. Both
end up in exception texts, so every log line is redacted here.
"""

from __future__ import annotations

import re
from typing import Final

REDACTED: Final = "***"

_URL_CREDENTIALS: Final = re.compile(
    # A database URL up to its last @: people forget to escape a slash in a password.
    r"(?P<scheme>postgres(?:ql)?://)[^\s'\"]*@|(?P<other>[a-z][a-z0-9+.-]*://)[^/\s?#'\"]*@",
    re.IGNORECASE,
)
_SECRET_PARAMETERS: Final = re.compile(
    r"(?P<name>[?&](?:[\w.-]*(?:password|passwd|secret|token|signature|credential|api[_-]?key"
    r"|access[_-]?key(?:[_-]?id)?)|sig|key)=)[^&#\s'\"]+",
    re.IGNORECASE,
)
_POSTGRES_DETAIL: Final = re.compile(
    r"(?P<label>\bDETAIL:)\s.*?(?=\n(?:HINT|CONTEXT):|\n\n|\nTraceback|\Z)", re.DOTALL
)
_QUERY_ARGUMENT: Final = re.compile(
    r"(?P<label>invalid input for query argument \$\d+[^:\n]*: ).*(?= \()", re.DOTALL
)


def redact(text: str) -> str:
    """``text`` without credentials in URLs and without values quoted by database errors."""
    # Most lines contain none of these, and cost only three substring searches.
    if "://" in text:
        text = _URL_CREDENTIALS.sub(rf"\g<scheme>\g<other>{REDACTED}@", text)
        text = _SECRET_PARAMETERS.sub(rf"\g<name>{REDACTED}", text)
    if "DETAIL:" in text:
        text = _POSTGRES_DETAIL.sub(rf"\g<label> {REDACTED}", text)
    if "query argument" in text:
        text = _QUERY_ARGUMENT.sub(rf"\g<label>{REDACTED}", text)
    return text
