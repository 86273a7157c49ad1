"""What a task's rate is counted by."""

from __future__ import annotations

import hashlib

import pytest

from coatcheck.products.batches.lines import RateKey


@pytest.mark.parametrize(
    ("given", "key"),
    [
        (b'{"url":"https://Example.ORG/a/b?c"}', "example.org"),
        (b'{"url":"HTTP://example.org:8080"}', "example.org"),
        (b'{"url":"https://user:p@ss@example.org/x@y"}', "example.org"),
        (b'{"url":"https://example.org?q=@other.org"}', "example.org"),
        (b'{"url":"https://example.org#@other.org"}', "example.org"),
        (b'{"url":"http://[::1]:80/x"}', "[::1]"),
        (b'{"url":"https://gr\xc3\xbcn.example/"}', "grün.example"),
        (b'{"url":"ftp://Example.org/"}', "ftp://Example.org/"),
        (b'{"url":"Customer 7"}', "Customer 7"),
        (b'{"url":""}', ""),
        (b'{"url":"https://"}', ""),
        (b'{"url":7}', ""),
        (b'{"url":null}', ""),
        (b'{"url":["https://example.org"]}', ""),
        (b'{"other":"https://example.org"}', ""),
        (b'"https://example.org"', ""),
        (b"[1]", ""),
    ],
)
def test_the_key_is_the_host_of_a_url_or_the_text_itself(given: bytes, key: str) -> None:
    assert RateKey("url").of(given) == key


def test_a_dotted_path_leads_to_a_field_within_fields() -> None:
    key = RateKey("page.meta.site-id")

    assert key.of(b'{"page":{"meta":{"site-id":"s1"}},"site-id":"s2"}') == "s1"
    assert key.of(b'{"page":{"meta":"s1"}}') == ""
    assert key.of(b'{"page":{}}') == ""
    assert key.of(b'{"page":null}') == ""


def test_a_long_key_is_told_by_its_hash() -> None:
    key = RateKey("k")

    assert key.of(b'{"k":"' + b"x" * 100 + b'"}') == "x" * 100
    assert key.of(b'{"k":"' + b"x" * 101 + b'"}') == hashlib.sha256(b"x" * 101).hexdigest()
