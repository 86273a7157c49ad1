"""How long to wait, by what an upstream's Retry-After says."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from coatcheck.products.gateway.executor import retry_after

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        (" 7 ", 7.0),
        ("3600", 3600.0),
        ("3601", 3600.0),
        ("9" * 400, 3600.0),
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        ("Fri, 02 Jan 2026 12:00:00 GMT", 3600.0),
        ("Thu, 01 Jan 2026 12:00:30 -0000", 30.0),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("\u0663", None),
        ("Thu, 99 Jan 2026 12:00:30 GMT", None),
        ("Thu, 01 Jan 99999999999 12:00:30 GMT", None),
    ],
)
def test_retry_after_is_read_and_bounded(value: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": value}, NOW) == seconds


def test_a_date_is_held_against_the_upstreams_own_clock() -> None:
    headers = {
        "retry-after": "Thu, 01 Jan 2026 13:00:30 GMT",
        "date": "Thu, 01 Jan 2026 13:00:00 GMT",
    }
    assert retry_after(headers, NOW) == 30.0
