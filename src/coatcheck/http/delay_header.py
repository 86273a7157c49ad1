"""Reads after how many seconds a job is to start: ``X-Coatcheck-Delay``."""

from __future__ import annotations

import re
from typing import Final

from coatcheck.domain.errors import InvalidParameter
from coatcheck.domain.limits import DELAY_SECONDS_MAX
from coatcheck.http.request import Call
from coatcheck.http.routing import Parameter

_HEADER: Final = "X-Coatcheck-Delay"
_SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?", re.ASCII)

DELAY_PARAMETER: Final = Parameter(
    _HEADER,
    "header",
    "Seconds after which the job may start, by the database's clock; until then it is `staged`. "
    "With a known idempotency key, what came with the first submission stands.",
    {"type": "number", "minimum": 0, "maximum": DELAY_SECONDS_MAX},
)


def read_delay(call: Call) -> float:
    """The seconds; 0 if nothing was said. Raises InvalidParameter."""
    given = call.header(_HEADER.lower().encode())
    if given is None:
        return 0.0
    if not _SECONDS.fullmatch(given) or float(given) > DELAY_SECONDS_MAX:
        issue = f"must be a number of seconds from 0 to {DELAY_SECONDS_MAX}"
        raise InvalidParameter(_HEADER, issue, "header")
    return float(given)
