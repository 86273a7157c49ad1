from __future__ import annotations

from typing import Any

import httpx2
import pytest

from coatcheck.client import UnexpectedAnswer
from coatcheck.client.addresses import Addresses, with_query
from tests.client.cases import cases

ERRORS = {"UnexpectedAnswer": UnexpectedAnswer, "ValueError": ValueError}


@cases("addresses")
def test_addresses_are_these(case: dict[str, Any]) -> None:
    addresses = Addresses(case["base_url"], case["org"])
    name, *arguments = case["call"]
    if "error" in case:
        with pytest.raises(ERRORS[case["error"]]):
            getattr(addresses, name)(*arguments)
        return
    url = getattr(addresses, name)(*arguments)
    assert url == case["url"]
    assert str(httpx2.URL(url)).removesuffix(":443") == case["url"].replace(":443", "")


@pytest.mark.parametrize(
    "base_url",
    [
        "",
        "jobs.example.com",
        "ftp://jobs.example.com",
        "http://",
        "https://user:sesame@example.com",
        "https://example.com?x=1",
        "https://example.com#x",
        "https://example.com:port",
        "https://example.com:65536",
    ],
)
def test_a_base_url_that_cannot_work_is_refused_and_not_repeated(base_url: str) -> None:
    with pytest.raises(ValueError, match=r"base_url|[Pp]ort") as refused:
        Addresses(base_url, "default")
    assert "sesame" not in str(refused.value)


def test_a_query_is_added_without_what_is_none_and_replaced_where_it_was() -> None:
    first = with_query("https://example.com/jobs", {"limit": 200, "status": None})
    assert first == "https://example.com/jobs?limit=200"
    second = with_query(first, {"cursor": "a"})
    assert with_query(second, {"cursor": "b"}) == "https://example.com/jobs?limit=200&cursor=b"
