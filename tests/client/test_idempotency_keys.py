from __future__ import annotations

from typing import Any

import pytest

from coatcheck.client.request_headers import key_header
from tests.client.cases import TICKET, cases
from tests.client.conftest import Connect


@cases("idempotency_keys")
def test_a_key_is_spelt_so(case: dict[str, Any]) -> None:
    if case.get("error"):
        with pytest.raises(ValueError, match="an idempotency key"):
            key_header(case["key"])
    else:
        assert key_header(case["key"]) == case["header"]


async def test_a_known_key_is_told_by_the_job(connect: Connect, scripted: Any) -> None:
    server = await scripted(
        {"status": 202, "json": TICKET},
        {
            "status": 202,
            "json": TICKET,
            "headers": {"Idempotent-Replayed": "true", "Idempotency-Mismatch": "true"},
        },
    )
    client = connect(server.url)
    first = await client.submit("docs", "analyze", {"a": 1}, idempotency_key="Größe-1")
    second = await client.submit("docs", "analyze", {"a": 2}, idempotency_key="Größe-1")
    assert (first.replayed, first.mismatch) == (False, False)
    assert (second.replayed, second.mismatch) == (True, True)
    assert [asked.headers["idempotency-key"] for asked in server.asked] == ["Größe-1"] * 2
